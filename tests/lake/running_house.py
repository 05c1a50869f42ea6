"""What the tests of runs share: a queue at work, a pipeline that stops where it is told to, and what must be there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

import tampu
from tampu.lake import backfilling, gold, rounds
from tampu.lake.lineage import RunReport
from tampu.lake.running import Pipeline
from tampu.lake.storage import Lake
from tampu.lake.tables import BY_NAME
from tampu.spark.columns import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STEPS = ("written", "bronze.events", "silver.attempts", "silver.messages", "_state.carried", "position")
"""Where runs are made to die: after files were written, and between any two kinds of commits."""


class Died(BaseException):
    """The run ends here, as if the process had been killed: nothing after this step has happened."""


def work(q: tampu.Queue, first: int = 0) -> None:
    """Some of everything: done, failed, dead, replayed, still ready."""
    q.publish_many("jobs", [tampu.NewMessage({"n": first + n}, type="job.do") for n in range(6)])
    done, failed, dead = q.claim("jobs", limit=3, worker="w1")
    q.ack(done, result=first)
    q.nack(failed, f"SMTP {first}", delay=0)
    q.reject(dead, error="bad")
    if first:
        q.replay("jobs", where={})
        for lease in q.claim("jobs", limit=2, worker="w2"):
            q.ack(lease)


class Rig:
    def __init__(self, spark: SparkSession, url: str, lake: str) -> None:
        self.spark, self.url = spark, url
        self.lake = Lake(lake)

    def run(self, *, die: str | None = None, name: str = "main", **options: Any) -> list[RunReport]:
        def step(reached: str) -> None:
            if reached == die:
                raise Died(reached)

        return Pipeline(self.url, self.lake, name=name, on_step=step, **options).run(lambda: self.spark)

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """The rows of a table, sorted; without the columns that say which run wrote them."""
        found = self.lake.table(table).open().arrow().to_table()
        names = list(columns) or [n for n in found.schema.names if n != "run" or table.startswith("silver")]
        rows = [tuple(map(_plain, row.values())) for row in found.select(names).to_pylist()]
        return sorted(rows, key=lambda row: row if columns else tuple(map(str, row)))


def _plain(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def journal(q: tampu.Queue) -> list[tuple[int, str, str]]:
    """The engine's own: (offset, id, verb) of every transition."""
    return [(t.offset, t.id, t.verb) for t in q.journal(limit=100_000).transitions]


@pytest.fixture
def light_gold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gold that is quick to compute, where a test is about the order of commits and not about numbers."""

    def refresh(
        days: Sequence[date], events: DataFrame, attempts: Any, messages: DataFrame, *rest: Any
    ) -> dict[str, DataFrame]:
        table = BY_NAME["gold.tenant_days"]
        counted = messages.groupBy("day", "tenant").count().withColumnRenamed("count", "done")
        for field in table.schema:
            if field.name not in counted.columns:
                counted = counted.selectExpr(
                    "*", f"CAST(NULL AS {ddl(table.schema).split(f'`{field.name}` ')[1].split(',')[0]}) AS {field.name}"
                )
        return {table.name: counted}

    monkeypatch.setattr(gold, "refresh", refresh)
    for module in (rounds, backfilling):
        monkeypatch.setattr(module, "GOLD", ("gold.tenant_days",))
