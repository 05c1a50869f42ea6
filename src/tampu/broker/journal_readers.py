"""Registered readers of the journal. Each has a document with the position up to which it has stored the journal
elsewhere.

Retention removes nothing after the lowest of these positions, so every reader gets everything. A reader with
``archive_after`` stores ended messages too: the store may remove them that long after they ended.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tampu.broker.journal_cursor import end_of_journal
from tampu.engines.port import DeleteDocument, Document, Engine, PutDocument
from tampu.model.decoders import from_json
from tampu.model.journal import Position
from tampu.model.times import SECOND

_DAY_US = 86_400 * SECOND
KIND = "reader"
TENANT = "*"
"""Readers belong to the whole store, not to a tenant; no tenant can have this name."""
OBJECTIVES = "objectives"
"""Kind of the documents with service level objectives of queues, which readers evaluate."""
FOLLOWER = "follower:"
"""Begins the names of readers that are handlers (`tampu.broker.followers`)."""
IDENTITY = ("store", TENANT, "identity")
"""The document that identifies this store to readers which keep their position elsewhere."""


class Failure(msgspec.Struct, frozen=True):
    """Why a follower does not go on (see `tampu.broker.followers`)."""

    error: str
    attempts: int
    retry_us: int
    """When it is tried again, by the engine's clock."""
    parked: bool = False
    """It is not tried again until somebody resumes it."""


class Intent(msgspec.Struct, frozen=True):
    """What a follower has decided and its process has yet to do. To do it again changes nothing."""

    verb: Literal["cancel", "free", "act"]
    """``act`` is done by the follower's own method."""
    tenant: str
    ids: list[str]


class Reader(msgspec.Struct, frozen=True):
    name: str
    position: Position
    moved_us: int
    """When the position last changed, by the engine's clock."""
    archive_after_us: int | None = None
    place: str = ""
    """Where the reader stores what it reads; shown to users."""
    failure: Failure | None = None
    intents: list[Intent] = []
    handled: int = 0
    """How many transitions a follower was given."""


_read = from_json(Reader).decode


def decode(document: Document) -> Reader:
    return _read(document.value)


def registered(engine: Engine) -> list[Reader]:
    return [decode(document) for document in engine.documents(KIND, TENANT)]


def saving(reader: Reader, version: int | None = None) -> PutDocument:
    """The call that stores a reader; with ``version`` only if the document still has it."""
    return PutDocument(KIND, TENANT, reader.name, msgspec.json.encode(reader), version)


def forgetting(name: str) -> DeleteDocument:
    """The call that removes a reader; retention no longer waits for it."""
    return DeleteDocument(KIND, TENANT, name)


def read_by_all(readers: list[Reader]) -> Position | None:
    """The position up to which all readers have read: the lowest offset in each partition. None without readers."""
    if not readers:
        return None
    partitions = {partition for reader in readers for partition in reader.position}
    return {p: min(reader.position.get(p, 0) for reader in readers) for p in partitions}


def behind(reader: Reader, latest: Position) -> int:
    """How many transitions a reader has not got."""
    return sum(max(0, end - reader.position.get(p, 0)) for p, end in latest.items())


def findings(engine: Engine) -> list[tuple[str, str, str]]:
    """For `tampu doctor`. A reader delays retention, so one that has stopped fills the disk."""
    found = []
    known = registered(engine)
    latest = end_of_journal(engine) if known else {}
    for reader in known:
        left = behind(reader, latest)
        days = (engine.now() - reader.moved_us) / _DAY_US
        if reader.failure is not None:
            state = "is parked" if reader.failure.parked else "waits for its next try"
            resume = f"; when that is mended: tampu followers resume {reader.name.removeprefix(FOLLOWER)}"
            text = f"{reader.name} {state}, {left:,} transitions behind: {reader.failure.error}"
            found.append(("reader", "warn", text + resume * reader.failure.parked))
        elif left and days > 1:
            text = f"{reader.name} has not moved for {days:.1f} days and is {left:,} transitions behind; the store "
            found.append(("reader", "warn", f"{text}keeps all of them. {_advice(reader.name)}"))
        else:
            found.append(("reader", "ok", f"{reader.name}, {left:,} transitions behind"))
    return found


def _advice(reader: str) -> str:
    """How to start a reader again, or remove it."""
    if reader.startswith(FOLLOWER):
        name = reader.removeprefix(FOLLOWER)
        return f"Start a process that has its handler, or remove it: tampu followers remove {name}"
    return f"Start it again (tampu pipeline run), or remove it: tampu pipeline forget {reader.removeprefix('lake:')}"


def archive_after(readers: list[Reader]) -> int | None:
    """How long the store keeps an ended message that all readers have; None: for its retention."""
    return min((r.archive_after_us for r in readers if r.archive_after_us is not None), default=None)
