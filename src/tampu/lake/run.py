"""A run of the pipeline: journal → bronze → silver → gold → lineage, and only then the reader's position in the store.

There is no checkpoint beside the tables. Each table's log says how far into the journal the table has come, in the same
commit as the rows; a run brings every table from where it is to where the journal was when the run began. So a run that
died anywhere is repeated exactly, by whichever run comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import msgspec

from tampu.broker import journal_readers
from tampu.broker.journal_readers import Reader
from tampu.engines.port import PutDocument
from tampu.lake import gold, lineage, objectives, own_tables, state
from tampu.lake.lineage import RunReport
from tampu.lake.objectives import Objective
from tampu.lake.rounds import Round
from tampu.lake.state import EVENTS, Registration, State
from tampu.lake.storage.lake import Lake
from tampu.lake.storage.snapshots import Mark
from tampu.lake.storage.urls import absolute
from tampu.lake.tables import Table
from tampu.model.journal import Position
from tampu.stores.open_store import open_store
from tampu.stores.port import ArrowStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 10_000_000
"""Transitions that one round takes on; more are several rounds."""


class Pipeline:
    """One store, one lake and the reader that ties them together."""

    def __init__(
        self,
        url: str,
        lake: Lake,
        *,
        name: str = "main",
        archive_after_us: int | None = None,
        targets: Sequence[Objective] | None = None,
        tables: Sequence[Table] = (),
        broken: Mapping[str, str] | None = None,
        most: int = MOST,
        skip_lost: bool = False,
        checks: bool = True,
        on_step: Callable[[str], None] = lambda _step: None,
    ) -> None:
        """``broken`` are tables that could not be loaded, and why: every report tells of them."""
        self.url = absolute(url)
        self.lake = lake
        self.reader = state.reader_name(name)
        self._archive = archive_after_us
        self._objectives = targets
        self._own = own_tables.checked(tables)
        self._broken = dict(broken or {})
        self._failed: dict[str, str] = {}
        self._most = most
        self._skip_lost = skip_lost
        self._checks = checks
        self._on_step = on_step

    # -- whole runs

    def run(self, spark: Callable[[], SparkSession]) -> list[RunReport]:
        """Bring the lake to where the journal is now. One report per round; a single one of run 0 without news, which
        does not ask for Spark."""
        began = _now()
        with open_store(self.url) as store:
            _, latest = store.bounds()
            registration = Registration(store, self.reader)
            registration.check_lake(self.lake)
            self._save_objectives(store)
            if self._up_to_date(registration, latest):
                return [self._nothing(began, latest)]
            here = State(self.lake, self.reader, state.store_id(store), latest)
            reports = []
            while True:
                first, _ = store.bounds()
                after = state.check_reach(here, first, latest, skip_lost=self._skip_lost)
                if registration.reader is None:
                    # From here on retention keeps what this run has not read yet.
                    registration.save(after, self._archive, self.lake.uri)
                target = _capped(after, latest, self._most)
                reports.append(self._round(spark, store, here, registration, after, target))
                if target == latest:
                    return reports
                here.refresh(*state.ALL)

    def _up_to_date(self, registration: Registration, latest: Position) -> bool:
        """The position in the store is moved last: if it is at the end, every table is."""
        known = registration.reader
        if known is None or known.position != latest or known.archive_after_us != self._archive:
            return False
        events = state.table(self.lake, EVENTS).find()
        if events is None or events.position(self.reader, latest) != latest:
            return False
        # One that failed in this process is tried again with the next news: its function is the same until then.
        own = [table for table in self._own if table.name not in self._failed]
        return not own_tables.behind(self.lake, own, self.reader, latest) or not events.files()

    def _nothing(self, began: datetime, at: Position) -> RunReport:
        return RunReport(
            run=0,
            reader=self.reader,
            started=began,
            finished=_now(),
            from_position=at,
            to_position=at,
            failed=self._broken,
        )

    def _round(
        self,
        spark: Callable[[], SparkSession],
        store: ArrowStore,
        here: State,
        registration: Registration,
        after: Position,
        target: Position,
    ) -> RunReport:
        work = Round(spark, self.url, here, here.next_run(), self._on_step, strict=self._checks)
        began = _now()
        work.events(after, target)
        work.messages(target)
        work.audit(store, target)
        work.silver(target)
        self._failed = gold.refresh(work, target, self._known_objectives(store), self._own)
        report = self._noted(work, began, after, target)
        self._on_step("position")
        registration.save(target, self._archive, self.lake.uri)
        self._on_step("done")
        return report

    def _noted(self, work: Round, began: datetime, after: Position, target: Position) -> RunReport:
        """What was done, and that it was, in the lineage."""
        report = RunReport(
            run=work.run,
            reader=self.reader,
            started=began,
            finished=_now(),
            from_position=after,
            to_position=target,
            rows=work.rows,
            seconds=work.seconds,
            versions={name: found.version for name, found in work.here.tables.items()},
            failed=self._broken | self._failed,
            checks=work.checks,
        )
        lineage.note(self.lake, report, Mark(self.reader, work.run, target))
        return report

    # -- objectives are kept in the store, so that a backfill measures against the same

    def _save_objectives(self, store: ArrowStore) -> None:
        if self._objectives is not None:
            text = msgspec.json.encode(list(self._objectives))
            found = store.document(journal_readers.OBJECTIVES, journal_readers.TENANT, self.reader)
            if found is None or found.value != text:
                store.run([PutDocument(journal_readers.OBJECTIVES, journal_readers.TENANT, self.reader, text)])

    def _known_objectives(self, store: ArrowStore) -> list[Objective]:
        found = store.document(journal_readers.OBJECTIVES, journal_readers.TENANT, self.reader)
        return objectives.parse(found.value) if found is not None else []

    # -- days again

    def backfill(self, spark: Callable[[], SparkSession], days: Sequence[date], *, layer: str = "gold") -> RunReport:
        """Compute days anew from bronze: gold, or silver and gold."""
        began = _now()
        with open_store(self.url) as store:
            _, latest = store.bounds()
            here = State(self.lake, self.reader, state.store_id(store), latest)
            target = state.check_whole(here)
            work = Round(spark, self.url, here, here.next_run(), self._on_step, strict=self._checks)
            if layer == "silver":
                work.silver_days(days)
            self._failed = gold.refresh(work, target, self._known_objectives(store), self._own, days=days)
            return self._noted(work, began, target, target)

    def registered(self) -> Reader | None:
        with open_store(self.url) as store:
            return Registration(store, self.reader).reader


def _capped(after: Position, latest: Position, most: int) -> Position:
    """The end, or as far as ``most`` transitions go."""
    target = {}
    for p, end in sorted(latest.items()):
        target[p] = min(end, after.get(p, 0) + most)
        most -= target[p] - after.get(p, 0)
    return target


def _now() -> datetime:
    return datetime.now(UTC)


def run_once(
    spark: SparkSession | Callable[[], SparkSession],
    url: str,
    lake: Lake | str,
    *,
    name: str = "main",
    tables: Sequence[Table] = (),
) -> RunReport:
    """Bring the lake, with these tables of your own, to where the journal is now; the report of the last round."""
    make = spark if callable(spark) else lambda: spark
    return Pipeline(url, lake if isinstance(lake, Lake) else Lake(lake), name=name, tables=tables).run(make)[-1]
