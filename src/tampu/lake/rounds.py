"""The steps of one round: each brings its tables from where they are to where the journal was when the round began."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import functions as F

from tampu.lake import bronze, gold, silver
from tampu.lake.files import DataFile
from tampu.lake.objectives import Objective
from tampu.lake.state import CARRIED, EVENTS, GOLD, MESSAGES, SILVER, STAYS, State
from tampu.lake.storage import Mark, Snapshot, exactly, write
from tampu.model.journal import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FEW = 200_000
_SMALL = 500_000
"""So many transitions are looked through without Spark, and make one file per table, day and tenant of gold."""

Step = Callable[[str], None]


class Round:
    """The steps of one round. Each brings its tables from where they are to ``target``, or finds that they are."""

    def __init__(self, spark: SparkSession, url: str, here: State, run: int, on_step: Step) -> None:
        self.spark = spark
        self.here = here
        self.run = run
        self.rows: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self._url = url
        self._on_step = on_step
        self._label = f"{here.reader.partition(':')[2]}-{run}"

    def mark(self, position: Position) -> Mark:
        return Mark(self.here.reader, self.run, position)

    def _table(self, name: str) -> Snapshot:
        return self.here.tables[name]

    def done(self, name: str, new: Sequence[DataFile], began: float) -> None:
        self.rows[name] = self.rows.get(name, 0) + sum(file.rows for file in new)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began
        self.here.refresh(name)
        self._on_step(name)

    # -- bronze

    def events(self, after: Position, target: Position) -> None:
        if self.here.position(EVENTS) == target:
            return
        began = time.monotonic()
        self._on_step("reading")
        ranges, read = bronze.events(self.spark, self._url, after, target, self._label)
        new = write(ranges, self._table(EVENTS).table, f"r{self.run}", via=read)
        self._on_step("written")
        self._table(EVENTS).commit(new, self.mark(target))
        self.done(EVENTS, new, began)

    def messages(self, target: Position) -> None:
        have = self.here.position(MESSAGES)
        if have == target:
            return
        began = time.monotonic()
        ends = bronze.ends(self.between(have, target))
        new = self._table(MESSAGES).append(ends, self.mark(target), via=bronze.ended_messages(self._url, self._label))
        self.done(MESSAGES, new, began)

    def between(self, after: Position, upto: Position) -> DataFrame:
        """The events past one position and up to another."""
        return within(self._table(EVENTS).read(self.spark, after=after), after, upto)

    # -- silver

    def silver(self, target: Position) -> None:
        """Its tables move together; carried moves last. If a run died among them, some are where it wanted to go: the
        others follow exactly there first."""
        while (have := self.here.position(CARRIED)) != target:
            begun = self.here.most(SILVER)
            self._silver(have, begun if begun != have else target)

    def _silver(self, have: Position, target: Position) -> None:
        began = time.monotonic()
        new = self.between(have, target)
        carried = self._table(CARRIED).read(self.spark)
        earlier = self._earlier(new, have)
        bodies = within(
            self._table(MESSAGES).read(self.spark, after=have), have, target, "ended_partition", "ended_offset"
        )
        with silver.step(new, carried, earlier, bodies) as step:
            self.seconds["silver.step"] = self.seconds.get("silver.step", 0.0) + time.monotonic() - began
            for name, rows in (("silver.attempts", step.attempts), (STAYS, step.stays)):
                if self.here.position(name) != target:
                    began = time.monotonic()
                    self.done(name, self._table(name).append(rows, self.mark(target)), began)
            if self.here.position("silver.messages") != target:
                self._silver_messages(step.messages, step.replaced, target)
            began = time.monotonic()
            self.done(CARRIED, self._table(CARRIED).overwrite(step.carried.coalesce(4), self.mark(target)), began)

    def _earlier(self, new: DataFrame, have: Position) -> DataFrame:
        """The events so far of messages that come back from the dead."""
        table = self._table(EVENTS)
        events = table.read(self.spark)
        if not any(have.values()) or not _replayed(table, have):
            return self.spark.createDataFrame([], events.schema)
        ids = silver.returning(new)
        return within(events, {}, have).join(ids, ["tenant", "id"], "left_semi")

    def _silver_messages(self, rows: DataFrame, replaced: DataFrame, target: Position) -> None:
        began = time.monotonic()
        table = self._table("silver.messages")
        stale = self._files_with(table, replaced)
        new = write(rows, table.table, f"r{self.run}")
        if stale:
            kept = table.read(self.spark, only=[file for file in table.files() if file.path in stale])
            kept = kept.join(replaced, ["tenant", "id"], "left_anti")
            new = [*new, *write(kept, table.table, f"r{self.run}")]
        table.commit(new, self.mark(target), drop=exactly(stale))
        self.done("silver.messages", new, began)

    def _files_with(self, table: Snapshot, ids: DataFrame) -> set[str]:
        """The data files that hold rows of these messages."""
        if not table.files() or ids.isEmpty():
            return set()
        found = table.places(self.spark, ["tenant", "id"]).join(ids, ["tenant", "id"], "left_semi")
        return {row.file for row in found.select("file").distinct().collect()}

    # -- gold

    def gold(self, target: Position, objectives: Sequence[Objective]) -> None:
        """Whole days are computed anew, so tables that are further than others do no harm."""
        have = self.here.least(GOLD)
        if have == target:
            return
        days = self._days_since(have) | self._days_before(have, target)
        self.gold_days(sorted(days), target, objectives)

    def _days_since(self, have: Position) -> set[date]:
        """The days of new events, and all from the newest one before them on: a backlog fills days without events."""
        events = self._table(EVENTS)
        new = {date.fromisoformat(file.day) for file in events.files(after=have) if file.day}
        fresh = {file.path for file in events.files(after=have)}
        old = {date.fromisoformat(file.day) for file in events.files() if file.day and file.path not in fresh}
        if not new:
            return new
        begin, end = max(old or {min(new)}), max(new | old)
        return new | {begin + timedelta(days=n) for n in range((end - begin).days + 1)}

    def _days_before(self, have: Position, target: Position) -> set[date]:
        """The days on which messages ended that are replayed now: there they no longer count as ended."""
        if not any(have.values()) or not _replayed(self._table(EVENTS), have):
            return set()
        earlier = self._earlier(self.between(have, target), have)
        return {row.day for row in bronze.ends(earlier).select("day").distinct().collect()}

    def gold_days(self, days: Sequence[date], target: Position, objectives: Sequence[Objective]) -> None:
        events = self._table(EVENTS)
        if not days:
            return
        count = events.rows(days=days)
        with suited(self.spark, count):
            self._gold_days(days, target, objectives, count <= _SMALL)

    def _gold_days(self, days: Sequence[date], target: Position, objectives: Sequence[Objective], small: bool) -> None:
        began = time.monotonic()
        events = self._table(EVENTS)
        frames = gold.refresh(
            days,
            within(events.read(self.spark, days=days), {}, target),
            self._table("silver.attempts").read(self.spark, days=days),
            self._table("silver.messages").read(self.spark, days=days),
            self._stays_since(min(days)),
            self._table(CARRIED).read(self.spark),
            newest(events),
            objectives,
        )
        self.seconds["gold.plan"] = time.monotonic() - began
        for name, rows in frames.items():
            began = time.monotonic()
            table = self._table(name)
            new = table.replace_days(rows.coalesce(1) if small else rows, days, self.mark(target))
            self.done(name, new, began)

    def _stays_since(self, first: date) -> DataFrame:
        stays = self._table(STAYS)
        return stays.read(
            self.spark, only=[file for file in stays.files() if file.day is None or file.day >= first.isoformat()]
        )


_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextlib.contextmanager
def suited(spark: SparkSession, rows: int) -> Iterator[None]:
    """Few rows are not worth the compiling of code for them: without it a small run takes two
    thirds of the time; at 300,000 it makes no difference."""
    if rows > _FEW:
        yield
        return
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in _INTERPRETED}
    for name, value in _INTERPRETED.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            _set_back(spark, name, was)


def _set_back(spark: SparkSession, name: str, value: str | None) -> None:
    if value is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, value)


def within(
    df: DataFrame, after: Position, upto: Position, partition: str = "partition", offset: str = "offset"
) -> DataFrame:
    """The rows past one position and up to another."""
    wanted = F.lit(False)
    for p, end in upto.items():
        wanted |= (F.col(partition) == p) & (F.col(offset) > after.get(p, 0)) & (F.col(offset) <= end)
    return df.where(wanted)


def _replayed(events: Snapshot, after: Position) -> bool:
    """May there be replays past a position? Looked up without Spark where that is little to read."""
    chosen = events.files(after=after)
    if sum(file.rows for file in chosen) > _SMALL:
        return True
    found = events.peek(["verb"], chosen)["verb"]
    return "replay" in found.unique().to_pylist()


def newest(events: Snapshot) -> datetime:
    """The time of the newest event."""
    known = [file.newest for file in events.files()]
    if known and all(at is not None for at in known):
        return max(at for at in known if at is not None)
    found = pc.max(events.arrow().to_table(columns=["at"])["at"]).as_py()
    return found if found is not None else datetime.now(UTC)
