"""The tables that one pipeline moves together: which there are, how far each has come, and whose they are."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from tampu.broker import journal_readers
from tampu.broker.journal_readers import Reader
from tampu.engines.port import PutDocument
from tampu.lake import lineage
from tampu.lake.storage.lake import Lake, LakeTable
from tampu.lake.storage.snapshots import Snapshot
from tampu.lake.tables import BY_NAME, INTERNAL, facts, silver
from tampu.model.errors import InvalidConfig, InvalidState, NotFound, StorageError, VersionConflict
from tampu.model.journal import Position
from tampu.stores.port import ArrowStore

READER = "tampu.reader"
STORE = "tampu.store"
EVENTS, MESSAGES, AUDIT = "bronze.events", "bronze.messages", "bronze.audit"
WAITING, CARRIED, ENDED = facts.waiting.name, silver.carried.name, facts.ends.name
GOLD = (ENDED, *(name for name in BY_NAME if name.startswith("gold.")))
SILVER = ("silver.attempts", "silver.messages", *(table.name for table in INTERNAL if table.name != ENDED))
"""Silver and the facts, which one pass over the histories of messages gives; carried is the last of them."""
ALL = (EVENTS, MESSAGES, *SILVER, *GOLD)
"""What follows from the journal."""


def reader_name(name: str) -> str:
    return f"lake:{name}"


def table(lake: Lake, name: str) -> LakeTable:
    if name in BY_NAME:
        return lake.table(name)
    (own,) = (table for table in INTERNAL if table.name == name)
    return lake.table(own, parted=name != CARRIED)


class State:
    """All tables of a lake as one run found them, opened for writing."""

    def __init__(self, lake: Lake, reader: str, store_id: str, partitions: Iterable[str]) -> None:
        self.lake = lake
        self.reader = reader
        self.partitions = tuple(partitions)
        properties = {READER: reader, STORE: store_id}
        self.tables: dict[str, Snapshot] = {name: table(lake, name).create(properties) for name in (*ALL, AUDIT)}
        self._check_owner(store_id)

    def _check_owner(self, store_id: str) -> None:
        events = self.tables[EVENTS]
        if events.property(READER) != self.reader:
            raise InvalidConfig(
                f"the lake {self.lake.uri} is kept by the reader {events.property(READER)}, not by {self.reader}",
                field="name",
                hint="use its --name, or another --lake",
            )
        if events.property(STORE) != store_id:
            raise InvalidConfig(
                f"the lake {self.lake.uri} was made from another store", field="lake", hint="use another --lake"
            )

    def refresh(self, *names: str) -> None:
        for name in names:
            self.tables[name] = self.tables[name].newer()

    def position(self, name: str) -> Position:
        return self.tables[name].position(self.reader, self.partitions)

    def least(self, names: Iterable[str]) -> Position:
        """What all of the tables have."""
        found = [self.position(name) for name in names]
        return {p: min(position[p] for position in found) for p in self.partitions}

    def most(self, names: Iterable[str]) -> Position:
        found = [self.position(name) for name in names]
        return {p: max(position[p] for position in found) for p in self.partitions}

    def next_run(self) -> int:
        """Greater than that of every commit so far."""
        noted = lineage.table(self.lake).find()
        last = noted.run(self.reader) if noted is not None else 0
        return 1 + max(last, *(found.run(self.reader) for found in self.tables.values()))


def store_id(store: ArrowStore) -> str:
    """What tells this store from others, made when it is first asked for."""
    for _ in range(5):
        found = store.document(*journal_readers.IDENTITY)
        if found is not None:
            return found.value.decode()
        try:
            store.run([PutDocument(*journal_readers.IDENTITY, uuid.uuid4().hex.encode(), version=0)])
        except VersionConflict:
            continue
    raise StorageError("the store's identity cannot be kept", hint="see tampu doctor")


class Registration:
    """The reader's document in the store: how far the lake has durably come."""

    def __init__(self, store: ArrowStore, name: str) -> None:
        self._store = store
        found = store.document(journal_readers.KIND, journal_readers.TENANT, name)
        self.name = name
        self.version = found.version if found else 0
        self.reader: Reader | None = journal_readers.decode(found) if found else None

    def check_lake(self, lake: Lake) -> None:
        """Refuse a lake that has less than the one the reader keeps: the store may forget what the other has not got.

        A lake that was moved has all of it, and is known again by that.
        """
        known = self.reader
        if known is None or known.place in ("", lake.uri):
            return
        events = table(lake, EVENTS).find()
        have = events.position(self.name, known.position) if events is not None else {}
        if any(have.get(p, 0) < offset for p, offset in known.position.items()):
            own = self.name.removeprefix(reader_name(""))
            raise InvalidConfig(
                f"the reader {own} keeps the lake {known.place}, which has more than {lake.uri}",
                field="name",
                hint=f"choose another --name for this one; or give the other up: tampu pipeline forget {own}",
            )

    def save(self, position: Position, archive_after_us: int | None, place: str) -> None:
        """Refused when another run has saved meanwhile."""
        reader = Reader(self.name, position, self._store.now(), archive_after_us, place)
        try:
            (self.version,) = self._store.run([journal_readers.saving(reader, self.version)])
        except VersionConflict:
            raise VersionConflict(
                f"another run of {self.name} is at work; nothing was doubled", hint="stop one of them"
            ) from None
        self.reader = reader


def check_whole(state: State) -> Position:
    """Only tables that are all at the same position can be computed anew; where that is."""
    have = state.position(EVENTS)
    if not any(have.values()):
        raise NotFound(f"the lake {state.lake.uri} is empty", hint="run tampu pipeline run first")
    if any(state.position(name) != have for name in ALL):
        raise InvalidState("a run did not come to its end", hint="run tampu pipeline run once, then the backfill")
    return have


def check_reach(state: State, first: Position, latest: Position, *, skip_lost: bool) -> Position:
    """Where to go on reading: what the lake has, if the journal still goes on from there."""
    have = state.position(EVENTS)
    begun = any(have.values())
    for p, offset in have.items():
        if offset > latest[p]:
            raise StorageError(
                f"the lake has come to {offset} of the journal, which ends at {latest[p]}: the store was set back",
                hint="restored from a backup? then begin another lake",
            )
        if begun and offset < first[p] and not skip_lost:
            raise NotFound(
                f"transitions {offset + 1} to {first[p]} were trimmed before the lake had them",
                field="offset",
                hint="go on without them with --skip-lost",
            )
    return {p: max(offset, first[p]) for p, offset in have.items()}
