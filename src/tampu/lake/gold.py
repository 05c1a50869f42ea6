"""Gold's step of a round: which days of which tenants changed, and their tables anew out of facts."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tampu.lake import frames, jobs
from tampu.lake.files import DataFile
from tampu.lake.objectives import Objective
from tampu.lake.rounds import Round
from tampu.lake.snapshots import Snapshot
from tampu.lake.state import EVENTS, GOLD, WAITING
from tampu.lake.tables import days as by_day
from tampu.lake.tables import queues
from tampu.lake.tables.words import ENDS
from tampu.model.journal import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COUNTS, DELIVERIES, FAILURES, STAYS = "_facts.counts", "_facts.deliveries", "_facts.failures", "_facts.stays"
_BY_DAY = (COUNTS, DELIVERIES, FAILURES, "silver.messages")


def refresh(work: Round, target: Position, objectives: Sequence[Objective]) -> None:
    """Bring gold to ``target``. Whole days are replaced, so tables that are further than others do no harm."""
    have = work.here.least(GOLD)
    if have != target:
        with jobs.configured(work.spark, work.table(EVENTS).rows()):
            days, tenants = touched(work, have, target)
        compute(work, days, tenants, target, objectives)


def touched(work: Round, have: Position, target: Position) -> tuple[set[date], set[str]]:
    """The days of new events, and all from the newest day before them to the newest of all, since what stands in the
    queues stands in each of them; and days on which messages ended that are replayed now: there they no longer count
    as ended. The tenants that have any of this."""
    events = work.table(EVENTS)
    fresh = {file.path: file for file in events.files(after=have)}
    new = {date.fromisoformat(file.day) for file in fresh.values() if file.day}
    old = {date.fromisoformat(file.day) for file in events.files() if file.day and file.path not in fresh}
    if not new:
        return set(), set()
    tenants = {file.tenant or "" for file in [*fresh.values(), *work.table(WAITING).files()]}
    taken_back = _taken_back(work, have, target)
    days = set(standing(new, old)) | {day for day, _ in taken_back}
    return days, tenants | {tenant for _, tenant in taken_back}


def standing(new: set[date], old: set[date]) -> list[date]:
    """From the newest day that there was, or from the first new event if that came late, to the newest there is."""
    begin, end = min([*new, max(old, default=max(new))]), max([*new, *old])
    return [begin + timedelta(days=n) for n in range((end - begin).days + 1)]


def _taken_back(work: Round, have: Position, target: Position) -> set[tuple[date, str]]:
    """Days and tenants of the ends so far of messages that are replayed."""
    if not any(have.values()) or "replay" not in work.verbs(have):
        return set()
    back = work.frame(EVENTS, after=have, upto=target).where("verb = 'replay'").select("tenant", "id").distinct()
    ends = work.frame(EVENTS, after={}, upto=have).where(f"state IN ({ENDS})")
    found = ends.join(back, ["tenant", "id"], "left_semi").select("day", "tenant").distinct().collect()
    return {(row.day, row.tenant) for row in found}


def compute(
    work: Round, days: Collection[date], tenants: Collection[str], target: Position, objectives: Sequence[Objective]
) -> None:
    """All tables of these days and tenants, in one job."""
    began = time.monotonic()
    found: dict[str, list[DataFile]] = {name: [] for name in GOLD}
    if days and tenants:
        chosen = _chosen(work, days, tenants)
        with jobs.configured(work.spark, sum(file.rows for files in chosen.values() for file in files)):
            rows = {
                name: frames.read_files(work.spark, work.table(name).table, files) for name, files in chosen.items()
            }
            found = work.write({name: (frame, None) for name, frame in _tables(work, rows, days, objectives)})
    work.took("gold.compute", began)
    work.on_step("computed")
    gone = {(day.isoformat(), tenant) for day in days for tenant in tenants}
    for name, new in found.items():
        began = time.monotonic()
        work.table(name).replace_parts(new, gone, work.mark(target))
        work.done(name, new, began)


def _chosen(work: Round, days: Collection[date], tenants: Collection[str]) -> dict[str, list[DataFile]]:
    """The files of facts that are of these days and tenants. A stay counts from when it began to when it ended."""
    wanted, first = {day.isoformat() for day in days}, min(days).isoformat()

    def of(name: str) -> list[DataFile]:
        return [file for file in work.table(name).files() if (file.tenant or "") in tenants]

    found = {name: [file for file in of(name) if file.day in wanted] for name in _BY_DAY}
    return found | {STAYS: [file for file in of(STAYS) if (file.day or "") >= first], WAITING: of(WAITING)}


def _tables(
    work: Round, rows: dict[str, DataFrame], days: Collection[date], objectives: Sequence[Objective]
) -> Iterable[tuple[str, DataFrame]]:
    spark, counts, deliveries, messages = work.spark, rows[COUNTS], rows[DELIVERIES], rows["silver.messages"]
    until = newest(work.table(EVENTS))
    minutes = queues.queue_minutes(spark, counts, deliveries, rows[STAYS], rows[WAITING], days, until)
    minutes = jobs.kept(minutes)  # three tables are made of it
    return {
        "gold.queue_minutes": minutes,
        "gold.queue_hours": queues.queue_hours(spark, minutes, deliveries),
        "gold.queue_days": queues.queue_days(spark, minutes, deliveries),
        "gold.failures": by_day.failures(spark, rows[FAILURES]),
        "gold.tenant_days": by_day.tenant_days(spark, counts, deliveries, messages),
        "gold.workers": by_day.workers(spark, deliveries),
        "gold.tasks": by_day.tasks(spark, deliveries, messages),
        "gold.slo": by_day.slo(spark, messages, objectives),
    }.items()


def all_tenants(work: Round) -> set[str]:
    """All tenants that have a file in one of the tables."""
    names = (EVENTS, *_BY_DAY, STAYS, WAITING, *GOLD)
    return {file.tenant or "" for name in names for file in work.table(name).files()}


def newest(events: Snapshot) -> datetime:
    """The time of the newest event."""
    known = [file.newest for file in events.files()]
    if known and all(at is not None for at in known):
        return max(at for at in known if at is not None)
    found = pc.max(events.arrow().to_table(columns=["at"])["at"]).as_py()
    return found if found is not None else datetime.now(UTC)
