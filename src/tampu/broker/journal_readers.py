"""Who reads the journal for good: each reader keeps a document with the position that it has durably stored elsewhere.

Retention goes no further than the least of these positions, so nothing is removed that a reader has not got. A reader
with ``archive_after`` has the ended messages as well: the store may let go of them that long after their end.
"""

from __future__ import annotations

import msgspec

from tampu.broker.journal_cursor import end_of_journal
from tampu.engines.port import DeleteDocument, Document, Engine, PutDocument
from tampu.model.decoders import from_json
from tampu.model.journal import Position
from tampu.model.times import SECOND

_DAY_US = 86_400 * SECOND
KIND = "reader"
TENANT = "*"
"""Readers are of the whole store; no tenant has this name."""
OBJECTIVES = "objectives"
"""Documents in which readers keep what they hold queues to."""
IDENTITY = ("store", TENANT, "identity")
"""The document that tells this store from others, for readers that keep a position elsewhere."""


class Failure(msgspec.Struct, frozen=True):
    """Why a follower does not go on (see `tampu.broker.followers`)."""

    error: str
    attempts: int
    retry_us: int
    """When it is tried again, by the engine's clock."""
    parked: bool = False
    """It is not tried again until somebody resumes it."""


class Reader(msgspec.Struct, frozen=True):
    name: str
    position: Position
    moved_us: int
    """When the position last changed, by the engine's clock."""
    archive_after_us: int | None = None
    place: str = ""
    """Where it stores what it reads, for people."""
    failure: Failure | None = None


_read = from_json(Reader).decode


def decode(document: Document) -> Reader:
    return _read(document.value)


def registered(engine: Engine) -> list[Reader]:
    return [decode(document) for document in engine.documents(KIND, TENANT)]


def saving(reader: Reader, version: int | None = None) -> PutDocument:
    """The call that stores a reader's position; with ``version`` only if nobody else has meanwhile."""
    return PutDocument(KIND, TENANT, reader.name, msgspec.json.encode(reader), version)


def forgetting(name: str) -> DeleteDocument:
    """The call after which the store keeps nothing for this reader."""
    return DeleteDocument(KIND, TENANT, name)


def read_by_all(readers: list[Reader]) -> Position | None:
    """What every reader has: the least offset in each partition; None without readers."""
    if not readers:
        return None
    partitions = {partition for reader in readers for partition in reader.position}
    return {p: min(reader.position.get(p, 0) for reader in readers) for p in partitions}


def behind(reader: Reader, latest: Position) -> int:
    """How many transitions a reader has not got."""
    return sum(max(0, end - reader.position.get(p, 0)) for p, end in latest.items())


def findings(engine: Engine) -> list[tuple[str, str, str]]:
    """For `tampu doctor`: a reader holds retention back, and one that stands still fills the disk."""
    found = []
    known = registered(engine)
    latest = end_of_journal(engine) if known else {}
    for reader in known:
        left = behind(reader, latest)
        days = (engine.now() - reader.moved_us) / _DAY_US
        if reader.failure is not None:
            stands = "is parked" if reader.failure.parked else "waits"
            found.append(
                ("reader", "warn", f"{reader.name} {stands}, {left:,} transitions behind: {reader.failure.error}")
            )
        elif left and days > 1:
            told = (
                f"{reader.name} has not moved for {days:.1f} days and is {left:,} transitions behind; all that is "
                f"kept for it. Start it again (tampu pipeline run), or let go: tampu pipeline forget "
                f"{reader.name.removeprefix('lake:')}"
            )
            found.append(("reader", "warn", told))
        else:
            found.append(("reader", "ok", f"{reader.name}, {left:,} transitions behind"))
    return found


def archive_after(readers: list[Reader]) -> int | None:
    """How long the store must keep an ended message that all readers have; None: for its retention."""
    return min((r.archive_after_us for r in readers if r.archive_after_us is not None), default=None)
