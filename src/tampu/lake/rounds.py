"""The steps of one round: each brings its tables from where they are to where the journal was when the round began."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tampu.lake import audit, bronze, expectations, jobs
from tampu.lake.state import AUDIT, CARRIED, EVENTS, MESSAGES, SILVER, WAITING, State
from tampu.lake.storage import frames, parquet
from tampu.lake.storage.files import DataFile
from tampu.lake.storage.snapshots import Mark, Rewritten, Snapshot, exactly
from tampu.lake.tables import facts, silver
from tampu.lake.tables.bronze import ends_not_known
from tampu.lake.tables.words import ENDS, quoted
from tampu.model.errors import VersionConflict
from tampu.model.journal import Position
from tampu.stores.port import ArrowStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SLICES = 32
_TRIES = 5
_KEY = ["tenant", "id", "ended_at", "day"]

Step = Callable[[str], None]


class Round:
    """The steps of one round. Each brings its tables from where they are to ``target``, or finds that they are."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        url: str,
        here: State,
        run: int,
        on_step: Step,
        *,
        strict: bool = True,
    ) -> None:
        self._session = spark
        self.here = here
        self.run = run
        self.tag = f"r{run}"
        self.rows: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self.checks: expectations.Counts = {}
        self.on_step = on_step
        self._strict = strict
        self._url = url
        self._verbs: dict[tuple[tuple[str, int], ...], set[str]] = {}
        self._label = f"{here.reader.partition(':')[2]}-{run}"

    @functools.cached_property
    def spark(self) -> SparkSession:
        """Started by the first step that has something to do."""
        return self._session()

    def mark(self, position: Position) -> Mark:
        return Mark(self.here.reader, self.run, position)

    def table(self, name: str) -> Snapshot:
        return self.here.tables[name]

    def done(self, name: str, new: Sequence[DataFile], began: float) -> None:
        self.rows[name] = self.rows.get(name, 0) + sum(file.rows for file in new)
        self.took(name, began)
        self.here.refresh(name)
        self.on_step(name)

    def took(self, step: str, began: float) -> None:
        self.seconds[step] = self.seconds.get(step, 0.0) + time.monotonic() - began

    def write(self, outputs: dict[str, jobs.Rows]) -> dict[str, list[DataFile]]:
        """Data files of these tables, whose rows meet what is expected of them."""
        tables = {name: self.table(name) for name in outputs}
        watch = expectations.Watch(tables)
        watched = {n: (watch.over(n, rows) if made is None else rows, made) for n, (rows, made) in outputs.items()}
        found = jobs.write(watched, {name: table.table.target for name, table in tables.items()}, self.tag)
        self.expect(watch.broken(found))
        return found

    def expect(self, counted: expectations.Counts) -> None:
        for name, counts in counted.items():
            self.checks.setdefault(name, {}).update(counts)
        expectations.hold(counted, strict=self._strict)

    def frame(self, name: str, *, after: Position | None = None, upto: Position | None = None) -> DataFrame:
        """The rows of a table; of bronze, those past a position and up to another."""
        table = self.table(name)
        found = frames.read_files(self.spark, table.table, table.files(after=after))
        if upto is None:
            return found
        of, at = ("ended_partition", "ended_offset") if name == MESSAGES else ("partition", "offset")
        since = after or {}
        spans = [
            f"({of} = {quoted(p)} AND {at} > {since.get(p, 0)} AND {at} <= {end})"
            for p, end in upto.items()
            if end > since.get(p, 0)
        ]
        return found.where(" OR ".join(spans) or "false")

    def verbs(self, after: Position) -> set[str]:
        """The verbs of the events past a position, without a job: most of what is rare is looked for only if it is
        there."""
        key = tuple(sorted(after.items()))
        if key not in self._verbs:
            events = self.table(EVENTS)
            batches = events.peeked(["verb"], events.files(after=after))
            self._verbs[key] = {verb for batch in batches for verb in pc.unique(batch.column(0)).to_pylist()}
        return self._verbs[key]

    # -- bronze

    def events(self, after: Position, target: Position) -> None:
        if self.here.position(EVENTS) == target:
            return
        began = time.monotonic()
        self.on_step("reading")
        parts = bronze.slices(after, target, _SLICES)
        url, label = self._url, self._label

        def read(batches: jobs.Batches) -> jobs.Batches:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from bronze.read_slice(url, parts[number], label)

        new: list[DataFile] = []
        if parts:
            new = self.write({EVENTS: (self.spark.range(0, len(parts), 1, len(parts)), read)})[EVENTS]
        self.on_step("written")
        self.expect(expectations.whole(new, after, target))
        self.table(EVENTS).commit(new, self.mark(target))
        self.done(EVENTS, new, began)

    def messages(self, target: Position) -> None:
        have = self.here.position(MESSAGES)
        if have == target:
            return
        began = time.monotonic()
        url, label = self._url, self._label

        def fetch(batches: jobs.Batches) -> jobs.Batches:
            return bronze.ended_messages(url, batches, label)

        with jobs.configured(self.spark, self._many(have)):
            ends = self.frame(EVENTS, after=have, upto=target).where(f"state IN ({ENDS})")
            if any(have.values()) and "adopt" in self.verbs(have):
                ends = ends_not_known(self.spark, ends, self.frame(EVENTS, after={}, upto=target))
            new = self.write({MESSAGES: (ends, fetch)})[MESSAGES]
        self.table(MESSAGES).commit(new, self.mark(target))
        self.done(MESSAGES, new, began)

    def audit(self, store: ArrowStore, target: Position) -> None:
        """Few rows, which the driver writes."""
        if self.here.position(AUDIT) == target:
            return
        began, known = time.monotonic(), self.table(AUDIT)
        tenants = {"default", *(file.tenant or "" for file in self.table(EVENTS).files())}
        rows, newest = audit.new_records(store, known, self.here.reader, tenants, self._label)
        new = list(parquet.write_batches(known.table.target, self.tag, rows))
        known.commit(new, self.mark({**target, **newest}))
        self.done(AUDIT, new, began)

    # -- silver

    def silver(self, target: Position) -> None:
        """Its tables and the facts move together; carried moves last. If a run died among them, some are where it
        wanted to go: the others follow exactly there first. A table that is new comes from the beginning."""
        while behind := [name for name in SILVER if self.here.position(name) != target]:
            have, begun = self.here.position(CARRIED), self.here.most(SILVER)
            fresh = [name for name in behind if not any(self.here.position(name).values())]
            if fresh and any(have.values()):
                self._silver({}, have, fresh)
            else:
                upto = begun if begun != have else target
                self._silver(have, upto, [name for name in behind if self.here.position(name) != upto])

    def _silver(self, have: Position, target: Position, names: Sequence[str]) -> None:
        began = time.monotonic()
        with jobs.configured(self.spark, self._many(have), payloads=not self._sized(have)):
            histories = self._histories(have, target)
            found = self.write({name: (frame, None) for name, frame in self._selected(histories, have, target, names)})
            self.took("silver.walk", began)
            self.on_step("walked")
            for name in names:
                began = time.monotonic()
                files, table, mark = found[name], self.table(name), self.mark(target)
                if name == "silver.messages":
                    files = self._commit_messages(files, histories, have, mark)
                elif name in (CARRIED, WAITING):
                    table.overwrite(files, mark)
                else:
                    table.commit(files, mark)
                self.done(name, files, began)

    def _many(self, have: Position) -> int:
        """About how many rows are past a position, with those that are carried."""
        counts = [file.rows for name in (EVENTS, MESSAGES) for file in self.table(name).files(after=have)]
        return sum(counts) + self.table(CARRIED).rows()

    def _sized(self, have: Position) -> bool:
        """Do all rows of bronze.messages past a position say how large their payloads are? Then these are not read."""
        return all(file.nulls("payload_bytes") == 0 for file in self.table(MESSAGES).files(after=have))

    def _histories(self, have: Position, target: Position) -> DataFrame:
        """New events and earlier ones of the same messages: those that had not ended are carried from run to run, those
        that come back (by a replay, or because their store was moved) are looked up."""
        new = self.frame(EVENTS, after=have, upto=target)
        bodies = self.frame(MESSAGES, after=have, upto=target)
        if self._sized(have):
            nothing = ("CAST(NULL AS binary) AS payload", "CAST(NULL AS string) AS result")
            bodies = bodies.selectExpr("* EXCEPT (payload, result)", *nothing)
        old = self.frame(CARRIED)
        if not any(have.values()):
            if self.table(CARRIED).rows():  # days that were let go are carried only, the rest is new
                old = old.join(new.select("partition", "offset"), ["partition", "offset"], "left_anti")
        elif self.verbs(have) & {"replay", "adopt"}:
            back = new.where(f"verb = 'replay' OR (verb = 'adopt' AND state IN ({ENDS}))").select("tenant", "id")
            earlier = self.frame(EVENTS, after={}, upto=have).join(back.distinct(), ["tenant", "id"], "left_semi")
            known = old.select("partition", "offset")
            old = old.unionByName(earlier.join(known, ["partition", "offset"], "left_anti"))
        return jobs.kept(silver.histories(self.spark, new, old, bodies))

    def _selected(
        self, histories: DataFrame, have: Position, target: Position, names: Collection[str]
    ) -> Iterable[tuple[str, DataFrame]]:
        spark, attempts = self.spark, silver.attempts(self.spark, histories)
        tables = {
            "silver.attempts": lambda: attempts,
            "silver.messages": lambda: silver.messages(spark, histories),
            "_facts.counts": lambda: facts.counts(spark, self.frame(EVENTS, after=have, upto=target)),
            "_facts.deliveries": lambda: facts.deliveries(spark, attempts),
            "_facts.failures": lambda: facts.failures(spark, histories),
            "_facts.stays": lambda: facts.stays(spark, histories),
            WAITING: lambda: facts.waiting(spark, histories),
            CARRIED: lambda: silver.carried(spark, histories),
        }
        return [(name, tables[name]()) for name in names]

    def _commit_messages(self, new: list[DataFile], histories: DataFrame, have: Position, mark: Mark) -> list[DataFile]:
        """The rows of messages that were replayed go with the same commit; again, where their files were joined."""
        gone = silver.replaced(self.spark, histories)
        parts = set()
        if any(have.values()) and "replay" in self.verbs(have):
            parts = {(str(row.day), row.tenant) for row in gone.select("day", "tenant").distinct().collect()}
        for _ in range(_TRIES):
            table = self.table("silver.messages")
            stale, rest = self._without(table, gone, parts) if parts else ([], [])
            try:
                table.commit([*new, *rest], mark, drop=exactly(file.path for file in stale))
            except Rewritten:
                self.here.tables["silver.messages"] = table.unmoved(mark)
                continue
            return [*new, *rest]
        raise VersionConflict("silver.messages is rewritten all the time", hint="run it again later")

    def _without(
        self, table: Snapshot, gone: DataFrame, parts: Collection[tuple[str, str]]
    ) -> tuple[list[DataFile], list[DataFile]]:
        """Files that hold rows which are to go; and those files written anew without them."""
        chosen = [file for file in table.files() if (file.day, file.tenant) in parts]
        rows = frames.read_files(self.spark, table.table, chosen, with_file=True)
        hit = {row[0] for row in rows.join(gone, _KEY, "left_semi").select(frames.FILE).distinct().collect()}
        stale = [file for file in chosen if file.path.rpartition("/")[2] in hit]
        rest = frames.read_files(self.spark, table.table, stale).join(gone, _KEY, "left_anti")
        return stale, self.write({"silver.messages": (rest, None)})["silver.messages"]

    # -- days again

    def silver_days(self, days: Sequence[date]) -> None:
        """Silver and facts of these days out of all of bronze: what became of a message may have begun long before."""
        began = time.monotonic()
        target = self.here.position(EVENTS)
        wanted = " OR ".join(f"day = DATE'{day}'" for day in days)
        with jobs.configured(self.spark, self._many({}), payloads=not self._sized({})):
            histories = self._histories({}, target)
            chosen = self._selected(histories, {}, target, SILVER)
            found = self.write(
                {n: (frame if n in (CARRIED, WAITING) else frame.where(wanted), None) for n, frame in chosen}
            )
        for name, files in found.items():
            if name in (CARRIED, WAITING):
                self.table(name).overwrite(files, self.mark(target))
            else:
                self.table(name).replace_days(files, days, self.mark(target))
            self.done(name, files, began)
            began = time.monotonic()
