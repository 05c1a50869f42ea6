"""The Spark side of `tampu pipeline`: the session, repeated runs, and the prompt."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import tampu
from tampu.lake.run import Pipeline
from tampu.lake.status import lag
from tampu.stores.open_store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tampu.cli.lake.metrics import Metrics
    from tampu.lake.lineage import RunReport

log = logging.getLogger("tampu.pipeline")
_SHORT = 3_000_000
"""Transitions up to which a single run is short."""
_MOST_FAILURES = 5
"""Number of consecutive failed runs after which the command gives up."""
_OURS = re.compile(r"tampu\.model\.errors\.(\w+): (.*)")


def spark_session(
    master: str | None, remote: str | None, settings: Mapping[str, str], *, short: bool = False
) -> SparkSession:
    import tampu.spark

    return tampu.spark.session(master, remote=remote, name="tampu pipeline", config=settings, short=short)


def working_session(
    master: str | None, remote: str | None, settings: Mapping[str, str], *, short: bool = False
) -> SparkSession:
    """A session for a command that Ctrl-C ends. Spark's own signal handler is made for prompts: it cancels the job over
    a connection that is in use, and logs two tracebacks."""
    spark = spark_session(master, remote, settings, short=short)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.getLogger().addFilter(_worth_logging)
    return spark


def _worth_logging(record: logging.LogRecord) -> bool:
    """False for py4j's long log entries about Ctrl-C."""
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt))


@contextlib.contextmanager
def translated(hint: str | None = "nothing is lost: the next run repeats it") -> Iterator[None]:
    """Turn errors of Spark and the storage into a `TampuError` with one line; our own errors keep their class."""
    try:
        yield
    except tampu.TampuError:
        raise
    except OSError as error:
        from tampu.lake.storage.error_text import storage_error

        storage_failure = storage_error(error, hint)
        if storage_failure is None:
            raise
        raise storage_failure from error
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j", "deltalake", "_internal")):
            raise
        ours = _OURS.search(str(error))
        kind = getattr(tampu, ours[1], tampu.Unavailable) if ours else tampu.Unavailable
        first = (
            ours[2]
            if ours
            else next((line.strip() for line in str(error).splitlines() if line.strip()), "Spark failed")
        )
        raise kind(first[:500], hint=hint) from error


class Runner:
    def __init__(
        self,
        work: Pipeline,
        master: str | None,
        remote: str | None,
        settings: Mapping[str, str],
        on_report: Callable[[RunReport], None],
    ) -> None:
        self._work = work
        self._where = (master, remote, settings)
        self._spark: SparkSession | None = None
        self._on_report = on_report
        self._metrics: Metrics | None = None
        self._stop = threading.Event()
        self._forever = False

    def serve(self, where: str) -> int:
        from tampu.cli.lake.metrics import Metrics

        self._metrics = Metrics(self._work.reader)
        return self._metrics.serve(where)

    def _session(self) -> SparkSession:
        if self._spark is None:
            self._spark = working_session(*self._where, short=not self._forever and self._lag()[0] <= _SHORT)
            if self._forever:
                self._catch()  # Spark has installed its own handlers
        return self._spark

    def once(self) -> None:
        with translated():
            reports = self._work.run(self._session)
        for report in reports:
            if self._metrics is not None:
                self._metrics.ran(report)
            self._on_report(report)
        self._measure()

    def _measure(self) -> None:
        if self._metrics is not None:
            self._metrics.lag(*self._lag())

    def _lag(self) -> tuple[int, float]:
        known = self._work.registered()
        with open_store(self._work.url) as store:
            return lag(store, known.position if known else {})

    def _count_failure(self) -> None:
        """Also measure the lag: it matters most while runs fail."""
        if self._metrics is not None:
            self._metrics.failed()
            with contextlib.suppress(tampu.StorageError):  # perhaps the store cannot be used
                self._measure()

    def forever(self, seconds: float) -> None:
        """Run at an interval. A signal ends it between two runs."""
        before = self._catch()
        self._forever = True
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
                    self._count_failure()
                    if failures >= _MOST_FAILURES:
                        raise
                    log.warning("run failed, retrying in %g s: %s", seconds, error)
                self._stop.wait(seconds)
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _catch(self) -> dict[signal.Signals, Any]:
        return {one: signal.signal(one, self._end) for one in (signal.SIGTERM, signal.SIGINT)}

    def _end(self, number: int, frame: Any) -> None:  # noqa: ARG002 - a signal handler's arguments
        self._stop.set()


def prompt(spark: SparkSession, names: list[str], code: str | None) -> None:
    """A Python prompt with the session."""
    import code as consoles

    from pyspark.sql import functions

    known = {"spark": spark, "F": functions, "sql": spark.sql}
    if code is not None:
        exec(compile(code, "<command>", "exec"), known)  # noqa: S102 - the user's own code, as in python -c
        return
    banner = f"spark is the session, F its functions, sql(…) runs a query. Views: {', '.join(names)}"
    consoles.interact(banner=banner, local=known, exitmsg="")
