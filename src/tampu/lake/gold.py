"""Gold's step of a round: which days of which tenants changed, and their tables anew.

A table is its function; its arguments say which tables it reads. Users' tables (`own_tables`) are built the same way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tampu.lake import jobs, own_tables
from tampu.lake.objectives import Objective
from tampu.lake.rounds import Round
from tampu.lake.state import ENDED, EVENTS, GOLD, WAITING
from tampu.lake.storage import frames
from tampu.lake.storage.files import DataFile
from tampu.lake.storage.snapshots import Snapshot
from tampu.lake.tables import GOLD as TABLES
from tampu.lake.tables import QUEUES, Table, facts, payloads
from tampu.lake.tables.schema import argument
from tampu.lake.tables.words import ENDS
from tampu.model.errors import InvalidConfig, InvalidState, VersionConflict
from tampu.model.journal import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("tampu.pipeline")
_GIVEN = ("spark", "days", "until", "objectives", "known")
"""What a function may ask for besides tables."""
_STAYS = "_facts.stays"
_MESSAGES = "silver.messages"
_COUNTED = 4
"""So many rows that are only counted, once, cost as much as one of facts."""


def refresh(
    work: Round,
    target: Position,
    objectives: Sequence[Objective],
    own: Sequence[Table] = (),
    *,
    days: Collection[date] = (),
) -> dict[str, str]:
    """Bring gold to ``target``, and then users' tables, each by itself: what goes wrong in one is answered, by its
    name, and stops only that one. With ``days``, compute these anew as well. Whole days are replaced, so tables that
    are further than others do no harm."""
    tenants = all_tenants(work) if days else set()
    known: dict[tuple[tuple[str, int], ...], Touched] = {}

    def bring(have: Position, *parts: tuple[Sequence[Table], bool]) -> None:
        """Tables, and whether days without events matter to them: one job, if the days are the same to all."""
        if have == target and not days:
            return
        key = tuple(sorted(have.items()))
        new = known[key] = known.get(key) or touched(work, have, target)
        wanted: dict[frozenset[date], list[Table]] = {}
        for tables, quiet in parts:
            wanted.setdefault(frozenset((new.all if quiet else new.eventful) | set(days)), []).extend(tables)
        for chosen, tables in wanted.items():
            compute(work, tables, chosen, new.tenants | tenants, target, objectives)

    bring(work.here.least(GOLD), (QUEUES, True), ((facts.ends, *TABLES[len(QUEUES) :]), False))
    failed = {}
    for table in own:
        try:
            bring(own_tables.position(work.here, table), ([table], True))
        except VersionConflict:
            raise
        except Exception as error:  # whatever a user's function raises
            failed[table.name] = own_tables.reason(error)
            log.warning("%s was not built, and is tried again with the next run: %s", table.name, failed[table.name])
    return failed


class Touched(NamedTuple):
    """What a run changes."""

    eventful: set[date]
    """The days of new events, and those on which messages ended that are replayed now: there they no longer count as
    ended."""
    all: set[date]
    """Also those from the newest day before them to the newest of all: what stands in the queues stands in each."""
    tenants: set[str]
    """That have any of this."""


def touched(work: Round, have: Position, target: Position) -> Touched:
    events = work.table(EVENTS)
    fresh = {file.path: file for file in events.files(after=have)}
    new = {date.fromisoformat(file.day) for file in fresh.values() if file.day}
    old = {date.fromisoformat(file.day) for file in events.files() if file.day and file.path not in fresh}
    if not new or have == target:
        return Touched(set(), set(), set())
    tenants = {file.tenant or "" for file in [*fresh.values(), *work.table(WAITING).files()]}
    with jobs.configured(work.spark, events.rows()):
        taken_back = _taken_back(work, have, target)
    eventful = new | {day for day, _ in taken_back}
    return Touched(eventful, eventful | set(standing(new, old)), tenants | {tenant for _, tenant in taken_back})


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
    work: Round,
    tables: Sequence[Table],
    days: Collection[date],
    tenants: Collection[str],
    target: Position,
    objectives: Sequence[Objective],
) -> None:
    """The rows of these days and tenants anew, in one job. All tables have the same grain."""
    began = time.monotonic()
    found: dict[str, list[DataFile]] = {table.name: [] for table in tables}
    periods = {tables[0].period(day.isoformat()) for day in days}

    def covered(file: DataFile) -> bool:
        return (file.tenant or "") in tenants and tables[0].period(file.day) in periods

    if days and tenants:
        found = _written(work, tables, covered, days, tenants, objectives)
    work.took("gold.compute", began)
    work.on_step("computed")
    for name, new in found.items():
        if name not in work.here.tables:  # a user's table that has no rows to begin with
            continue
        began = time.monotonic()
        strange = sorted({f"{file.day} of {file.tenant}" for file in new if not covered(file)})
        if strange:
            raise InvalidState(
                f"{name} has rows of {strange[0]}, which was not asked for", hint="take day and tenant from the input"
            )
        work.table(name).commit(new, work.mark(target), drop=lambda known: [file for file in known if covered(file)])
        work.done(name, new, began)
    for table in tables:
        if table.name not in GOLD and table.name in work.here.tables:
            own_tables.note_version(work.here, table)


def _written(
    work: Round,
    tables: Sequence[Table],
    covered: Callable[[DataFile], bool],
    days: Collection[date],
    tenants: Collection[str],
    objectives: Sequence[Objective],
) -> dict[str, list[DataFile]]:
    """Data files of these tables, which count for nothing yet. One job."""
    chosen = {}
    for name in {name for table in tables for name in inputs(work, table).values()} - {table.name for table in tables}:
        files = work.table(payloads.view_of(name)[0]).files()
        if name == _STAYS:  # a stay counts from when it began to when it ended
            first = min(days).isoformat()
            chosen[name] = [file for file in files if file.tenant in tenants and (file.day or "") >= first]
        elif name == WAITING:
            chosen[name] = [file for file in files if file.tenant in tenants]
        else:
            chosen[name] = [file for file in files if covered(file)]
    known, many = None, sum(file.rows for files in chosen.values() for file in files)
    if facts.ends in tables:
        many -= sum(file.rows for file in chosen[_MESSAGES])
        counted = [file for file in work.table(ENDED).files() if covered(file)]
        chosen[_MESSAGES], known = _not_counted(work, chosen[_MESSAGES], counted, objectives)
        many += sum(file.rows for file in chosen[_MESSAGES]) // _COUNTED
    with jobs.configured(work.spark, many, payloads=any(name.startswith("bronze.") for name in chosen)):
        built = _built(work, tables, chosen, days, objectives, known)
        for table in tables:
            if table.name not in GOLD:
                own_tables.open_table(work.here, table, built[table.name])
        return work.write({name: (frame, None) for name, frame in built.items()})


def _not_counted(
    work: Round, files: Sequence[DataFile], counted: Sequence[DataFile], objectives: Sequence[Objective]
) -> tuple[list[DataFile], pa.Table]:
    """Files of silver.messages whose ends have not been counted yet, and what is known of the others."""
    table, names = work.table(ENDED), {file.path.rpartition("/")[2]: file for file in files}
    schema = table.table.spec.schema
    rows = pa.Table.from_batches(table.peeked(schema.names, counted), schema)
    there = pc.is_in(rows["file"], value_set=pa.array(names, pa.string()))
    rows = rows.filter(pc.and_(there, pc.equal(rows["limits"], facts.limits(objectives))))
    return [names[name] for name in names.keys() - set(rows["file"].to_pylist())], rows


def inputs(work: Round, table: Table) -> dict[str, str]:
    """The tables that a function asks for, by the names of its arguments."""
    own = table.name not in GOLD
    known = {argument(name): name for name in work.here.tables if not (own and name.startswith("_"))}
    known[argument(payloads.NAME)] = payloads.NAME
    asked = [name for name in table.arguments if name not in _GIVEN]
    for name in asked:
        if name not in known:
            raise InvalidConfig(
                f"{table.name} asks for {name!r:.60}, which is no table of the lake",
                field="tables",
                hint=f"name its arguments after tables: {', '.join(sorted(known))}",
            )
        if own and work.here.position(payloads.view_of(known[name])[0]) != work.here.position(EVENTS):
            raise InvalidState(f"{known[name]} was not built", hint="what goes wrong there comes first")
    return {name: known[name] for name in asked}


def _built(
    work: Round,
    tables: Sequence[Table],
    chosen: Mapping[str, Sequence[DataFile]],
    days: Collection[date],
    objectives: Sequence[Objective],
    known: pa.Table | None,
) -> dict[str, DataFrame]:
    """``known`` are the facts of ends to keep, if they are among the tables."""
    given = {"spark": work.spark, "days": days, "until": newest(work.table(EVENTS)), "objectives": objectives}
    rows = {}
    for name, files in chosen.items():
        source, made = payloads.view_of(name)
        counted = known is not None and name == _MESSAGES
        rows[name] = made(frames.read_files(work.spark, work.table(source).table, files, with_file=counted))
    if known is not None:
        given["known"] = frames.local(work.spark, known)
    built: dict[str, DataFrame] = {}
    asked = {table.name: inputs(work, table) for table in tables}
    for table in tables:
        of = {name: rows[source] for name, source in asked[table.name].items()}
        frame = table(**of, **{name: value for name, value in given.items() if name in table.arguments})
        if any(table.name in other.values() for other in asked.values()):
            frame = jobs.kept(frame)
        built[table.name] = rows[table.name] = frame
    return built


def all_tenants(work: Round) -> set[str]:
    """All tenants that have a file in one of the tables."""
    return {file.tenant or "" for found in work.here.tables.values() for file in found.files()}


def newest(events: Snapshot) -> datetime:
    """The time of the newest event."""
    known = [file.newest for file in events.files()]
    if known and all(at is not None for at in known):
        return max(at for at in known if at is not None)
    found = pc.max(events.arrow().to_table(columns=["at"])["at"]).as_py()
    return found if found is not None else datetime.now(UTC)
