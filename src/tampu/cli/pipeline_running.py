"""What `tampu pipeline` does with Spark: a session, runs until told to end, a prompt."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import tampu
from tampu.lake.running import Pipeline
from tampu.lake.status import lag
from tampu.spark.stores.opening import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tampu.lake.lineage import RunReport
    from tampu.lake.metrics import Metrics

log = logging.getLogger("tampu.pipeline")
_MOST_FAILURES = 5
"""Runs that fail one after the other before the command gives up."""
_OURS = re.compile(r"tampu\.model\.errors\.(\w+): (.*)")


def spark_session(master: str | None, remote: str | None, settings: Mapping[str, str]) -> SparkSession:
    import tampu.spark

    return tampu.spark.session(master, remote=remote, name="tampu pipeline", config=settings)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """What Spark says at length is told in a line, and with our own words where the fault is ours to tell."""
    try:
        yield
    except tampu.TampuError:
        raise
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j", "deltalake", "_internal")):
            raise
        told = _OURS.search(str(error))
        kind = getattr(tampu, told[1], tampu.Unavailable) if told else tampu.Unavailable
        first = (
            told[2]
            if told
            else next((line.strip() for line in str(error).splitlines() if line.strip()), "Spark failed")
        )
        raise kind(first[:500], hint="nothing is lost: the next run repeats it") from error


class Runner:
    def __init__(
        self,
        work: Pipeline,
        master: str | None,
        remote: str | None,
        settings: Mapping[str, str],
        tell: Callable[[RunReport], None],
    ) -> None:
        self._work = work
        self._where = (master, remote, settings)
        self._spark: SparkSession | None = None
        self._tell = tell
        self._metrics: Metrics | None = None
        self._stop = threading.Event()
        self._until_told = False

    def serve(self, where: str) -> int:
        from tampu.lake.metrics import Metrics

        self._metrics = Metrics(self._work.reader)
        return self._metrics.serve(where)

    def _session(self) -> SparkSession:
        if self._spark is None:
            self._spark = spark_session(*self._where)
            if self._until_told:
                self._catch()  # Spark has put its own in place
        return self._spark

    def once(self) -> None:
        with translated():
            reports = self._work.run(self._session)
        for report in reports:
            if self._metrics is not None:
                self._metrics.ran(report)
            self._tell(report)
        self._measure()

    def _measure(self) -> None:
        if self._metrics is not None:
            known = self._work.registered()
            with open_store(self._work.url) as store:
                self._metrics.lag(*lag(store, known.position if known else {}))

    def forever(self, seconds: float) -> None:
        """Run, rest, run again; a signal ends it between two runs."""
        before = self._catch()
        self._until_told = True
        failures = 0
        try:
            while not self._stop.is_set():
                try:
                    self.once()
                    failures = 0
                except tampu.VersionConflict:
                    raise
                except tampu.StorageError as error:
                    failures += 1
                    if self._metrics is not None:
                        self._metrics.failed()
                    if failures >= _MOST_FAILURES:
                        raise
                    log.warning("run failed, trying again: %s", error)
                self._stop.wait(seconds)
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _catch(self) -> dict[signal.Signals, Any]:
        return {one: signal.signal(one, self._end) for one in (signal.SIGTERM, signal.SIGINT)}

    def _end(self, number: int, frame: Any) -> None:  # noqa: ARG002 - a signal handler's arguments
        self._stop.set()


def prompt(spark: SparkSession, names: list[str], code: str | None) -> None:
    """Python with the session at hand."""
    import code as consoles

    from pyspark.sql import functions

    known = {"spark": spark, "F": functions, "sql": spark.sql}
    if code is not None:
        exec(compile(code, "<command>", "exec"), known)  # noqa: S102 - the user's own words, as in python -c
        return
    banner = f"spark is the session, F its functions, sql(…) asks. Views: {', '.join(names)}"
    consoles.interact(banner=banner, local=known, exitmsg="")
