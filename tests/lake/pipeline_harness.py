"""What the tests of runs share: a queue at work, a pipeline that stops at a given step, and what must be there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import tampu
from tampu.lake.lineage import RunReport
from tampu.lake.run import Pipeline
from tampu.lake.storage import Lake
from tampu.stores.open_store import open_store
from tampu.stores.port import ArrowStore
from tests.spark.conftest import shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = (
    "written", "bronze.events", "bronze.messages", "walked", "silver.messages", "_facts.counts", "_facts.waiting",
    "_state.carried", "computed", "gold.failures", "gold.slo", "position",
)  # fmt: skip
"""Where runs are made to die: after files were written, and between any two kinds of commits."""
BRONZE, SILVER = "bronze.messages", "_state.carried"
"""The last steps of these layers."""


class Died(BaseException):
    """The run ends here, as if the process had been killed: nothing after this step has happened."""


def work(store: tampu.Store, first: int = 0) -> None:
    """Some of everything: done, failed, dead, replayed, still ready."""
    store.publish_many("jobs", [tampu.NewMessage({"n": first + n}, type="job.do") for n in range(6)])
    done, failed, dead = store.claim("jobs", limit=3, worker="w1")
    store.ack(done, result=first)
    store.nack(failed, f"SMTP {first}", delay=0)
    store.reject(dead, error="bad")
    if first:
        store.replay("jobs", where={})
        for lease in store.claim("jobs", limit=2, worker="w2"):
            store.ack(lease)


class Rig:
    """A store and its lake; runs are on the session of this process."""

    def __init__(self, url: str, lake: str, *, options: dict[str, str] | None = None) -> None:
        self.url = url
        self.lake = Lake(lake, options)

    def pipeline(self, **options: Any) -> Pipeline:
        return Pipeline(self.url, self.lake, **options)

    def session(self) -> SparkSession:
        return shared()

    def run(self, *, die: str | None = None, name: str = "main", **options: Any) -> list[RunReport]:
        def step(reached: str) -> None:
            if reached == die:
                raise Died(reached)

        return self.pipeline(name=name, on_step=step, **options).run(self.session)

    def run_until(self, step: str, **options: Any) -> None:
        """A run that dies after this step: of those that have what a test looks at, half or less of the cost."""
        with contextlib.suppress(Died):
            self.run(die=step, **options)
            raise AssertionError(f"there is no step {step}")

    def store(self) -> type[ArrowStore]:
        """What the pipeline opens."""
        with open_store(self.url) as found:
            return type(found)

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """The rows of a table, sorted; without the columns that say which run wrote them."""
        found = self.lake.table(table).open().arrow().to_table()
        names = list(columns) or [n for n in found.schema.names if n != "run" or table.startswith("silver")]
        rows = [tuple(map(_plain, row.values())) for row in found.select(names).to_pylist()]
        return sorted(rows, key=lambda row: row if columns else tuple(map(str, row)))


def _plain(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def journal(store: tampu.Store) -> list[tuple[int, str, str]]:
    """The engine's own: (offset, id, verb) of every transition."""
    return [(t.offset, t.id, t.verb) for t in store.journal(limit=100_000).transitions]
