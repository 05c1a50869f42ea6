"""Gold's step of a round: which days of which tenants are computed anew, out of which files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tampu.lake import bronze, gold, reopened, sheets, silver
from tampu.lake.files import DataFile, Place
from tampu.lake.objectives import Objective
from tampu.lake.rounds import Round
from tampu.lake.sheets import Sorted
from tampu.lake.snapshots import Snapshot
from tampu.lake.state import EVENTS, GOLD, STAYS, WAITING
from tampu.lake.tables import BY_NAME
from tampu.lake.walking import STAYS as STAYS_SCHEMA
from tampu.lake.walking import WAITING as WAITING_SCHEMA
from tampu.model.journal import Position

Pair = tuple[date, str]
"""A day of a tenant."""


def _of(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(column) for column in columns])


# Each is one object, so that it travels to the executors once and not with every part.
_SCHEMAS = {
    EVENTS: _of(BY_NAME[EVENTS].schema, gold.EVENTS),
    "silver.attempts": _of(BY_NAME["silver.attempts"].schema, gold.ATTEMPTS),
    "silver.messages": _of(BY_NAME["silver.messages"].schema, gold.MESSAGES),
    STAYS: _of(STAYS_SCHEMA, gold.STAYS),
    WAITING: _of(WAITING_SCHEMA, gold.WAITING),
}


class Files(msgspec.Struct, frozen=True):
    """Some columns of some data files."""

    place: Place
    schema: pa.Schema
    chosen: list[DataFile]

    def read(self) -> Iterable[pa.RecordBatch]:
        return sheets.read_batches(self.place, self.schema, self.chosen)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.chosen)


class Part(msgspec.Struct, frozen=True):
    """A tenant's day and the files it is in."""

    day: date
    tenant: str
    events: Files
    attempts: Files
    messages: Files
    stays: Files
    waiting: Files


def refresh(work: Round, target: Position, objectives: Sequence[Objective]) -> None:
    """Bring gold to ``target``. Whole days are computed anew, so tables that are further than others do no harm."""
    have = work.here.least(GOLD)
    if have != target:
        compute(work, sorted(touched(work, have, target)), target, objectives)


def touched(work: Round, have: Position, target: Position) -> set[Pair]:
    """The days of new events; what stands in the queues since the newest event before them, up to the newest of all;
    and days on which messages ended that are replayed now: there they no longer count as ended."""
    events = work.table(EVENTS)
    fresh = events.files(after=have)
    new = {(date.fromisoformat(file.day), file.tenant or "") for file in fresh if file.day}
    known = {file.path for file in fresh}
    old = {date.fromisoformat(file.day) for file in events.files() if file.day and file.path not in known}
    if not new:
        return set()
    tenants = {tenant for _, tenant in new} | {file.tenant or "" for file in work.table(WAITING).files()}
    newest = max(day for day, _ in new)
    stood = {
        (day, tenant) for tenant in tenants for day in standing({day for day, own in new if own == tenant}, old, newest)
    }
    return stood | _taken_back(work, have, target)


def standing(new: set[date], old: set[date], newest: date) -> list[date]:
    """The days in which a tenant's backlog may have changed: from the newest day that there was, or from its first new
    event if that came late, to the newest that there is. A backlog fills days without events too."""
    begin = min([*new, max(old, default=newest)])
    end = max([newest, *old])
    return [begin + timedelta(days=n) for n in range((end - begin).days + 1)]


def _taken_back(work: Round, have: Position, target: Position) -> set[Pair]:
    if not any(have.values()):
        return set()
    ids = reopened.replayed(work.table(EVENTS), have, target)
    if not ids.num_rows:
        return set()
    events = work.table(EVENTS)
    place, names = events.table.place, ["partition", "offset", "state", "id", "tenant", "day"]
    schema = pa.schema([events.table.spec.schema.field(name) for name in names])
    wanted = ids["id"].combine_chunks()

    def act(file: DataFile) -> Iterable[str]:
        found = set()
        for batch in bronze.ends(sheets.read_batches(place, schema, [file])):
            some = silver.within(batch, {}, have)
            some = some.filter(pc.is_in(some.column("id"), value_set=wanted))
            found |= set(zip(some.column("day").to_pylist(), some.column("tenant").to_pylist(), strict=True))
        return [json.dumps([day.isoformat(), tenant]) for day, tenant in found]

    chosen = [file for file in events.files() if not _past(file, have)]
    sizes = [file.rows for file in chosen]
    told = work.hands.each([file.bare() for file in chosen], act, sizes, sum(sizes))
    return {(date.fromisoformat(day), tenant) for day, tenant in map(json.loads, told)}


def _past(file: DataFile, have: Position) -> bool:
    """Are all rows of the file past a position?"""
    least = json.loads(file.stats)["minValues"].get("offset")
    return least is not None and len(have) == 1 and least > max(have.values())


def of_days(work: Round, days: Sequence[date]) -> list[Pair]:
    """Every tenant that there is anything of, on each of these days."""
    names = (EVENTS, "silver.attempts", "silver.messages", STAYS, WAITING, *GOLD)
    tenants = {file.tenant or "" for name in names for file in work.table(name).files()}
    return [(day, tenant) for day in days for tenant in sorted(tenants)]


def compute(work: Round, pairs: Sequence[Pair], target: Position, objectives: Sequence[Objective]) -> None:
    """All tables in one pass over each tenant's day."""
    began = time.monotonic()
    events = work.table(EVENTS)
    until, upto = newest(events), target
    finder = _Finder(work)
    parts = [finder.part(day, tenant) for day, tenant in pairs]
    sizes = [part.events.rows + part.attempts.rows + part.stays.rows for part in parts]

    def act(part: Part) -> Sorted:
        return gold.compute(
            gold.Day(
                day=part.day,
                tenant=part.tenant,
                events=(silver.within(batch, {}, upto) for batch in part.events.read()),
                attempts=part.attempts.read(),
                messages=part.messages.read(),
                stays=part.stays.read(),
                waiting=part.waiting.read(),
                until=until,
            ),
            objectives,
        )

    found = work.hands.write(parts, act, sizes, sum(sizes), work.targets(gold.NAMES), work.tag)
    work.took("gold.compute", began)
    work.on_step("computed")
    gone = {(day.isoformat(), tenant) for day, tenant in pairs}
    for name, new in found.items():
        began = time.monotonic()
        work.table(name).replace_parts(new, gone, work.mark(target))
        work.done(name, new, began)


class _Finder:
    """The files of each tenant's day."""

    def __init__(self, work: Round) -> None:
        self._work = work
        self._by_day: dict[str, dict[tuple[str | None, str | None], list[DataFile]]] = {}
        self._by_tenant: dict[str, dict[str | None, list[DataFile]]] = {}
        for name in (EVENTS, "silver.attempts", "silver.messages"):
            days = self._by_day.setdefault(name, {})
            for file in work.table(name).files():
                days.setdefault((file.day, file.tenant), []).append(file)
        for name in (STAYS, WAITING):
            tenants = self._by_tenant.setdefault(name, {})
            for file in work.table(name).files():
                tenants.setdefault(file.tenant, []).append(file)

    def part(self, day: date, tenant: str) -> Part:
        def on(name: str) -> list[DataFile]:
            return self._by_day[name].get((day.isoformat(), tenant), [])

        stays = [file for file in self._by_tenant[STAYS].get(tenant, []) if _reaches(file, day)]
        return Part(
            day,
            tenant,
            self._files(EVENTS, on(EVENTS)),
            self._files("silver.attempts", on("silver.attempts")),
            self._files("silver.messages", on("silver.messages")),
            self._files(STAYS, stays),
            self._files(WAITING, self._by_tenant[WAITING].get(tenant, [])),
        )

    def _files(self, name: str, chosen: list[DataFile]) -> Files:
        return Files(self._work.table(name).table.place, _SCHEMAS[name], [file.bare() for file in chosen])


def _reaches(file: DataFile, day: date) -> bool:
    """May stays that ended in this file have begun before the day was over, and ended on it or later?"""
    if file.day is not None and file.day < day.isoformat():
        return False
    least = json.loads(file.stats)["minValues"].get("ready_at")
    return least is None or str(least)[:10] <= day.isoformat()


def newest(events: Snapshot) -> datetime:
    """The time of the newest event."""
    known = [file.newest for file in events.files()]
    if known and all(at is not None for at in known):
        return max(at for at in known if at is not None)
    found = pc.max(events.arrow().to_table(columns=["at"])["at"]).as_py()
    return found if found is not None else datetime.now(UTC)
