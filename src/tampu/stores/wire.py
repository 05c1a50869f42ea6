"""Request and response bodies of ``/v1/spark/…``, apart from Arrow streams.

The name of a document that belongs to a job begins with the queue the job publishes to: ``queue/name``, or ``*/name``
if it may publish to any. The server checks access by that name.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tampu.model.journal import Position
from tampu.model.message import State
from tampu.wire.media import Form

ARROW = "application/vnd.apache.arrow.stream"
END = b"tampu.rows"
"""Metadata of the last, empty batch: number of rows sent before it. Without it, the stream is incomplete."""
PROBLEM = b"tampu.problem"
"""Metadata of the last batch if an error happened in the middle."""
ANY = "*"

Kind = Annotated[str, Meta(max_length=64)]
Name = Annotated[str, Meta(min_length=1, max_length=700)]
Offset = Annotated[int, Meta(ge=0, lt=1 << 62)]


class _Do(msgspec.Struct, frozen=True, tag_field="do", forbid_unknown_fields=True):
    pass


class SparkPut(_Do, frozen=True, tag="put"):
    """Write a document; with ``version``, only if it still has that version. Reply: the new version."""

    kind: Kind
    name: Name
    value: bytes
    version: Offset | None = None


class SparkDelete(_Do, frozen=True, tag="delete"):
    """Reply: 1 if it existed."""

    kind: Kind
    name: Name


class SparkLoad(_Do, frozen=True, tag="load"):
    """Simple messages. An id is the prefix and a number. Reply: how many are new."""

    queue: str
    id_prefix: bytes
    numbers: Annotated[list[Annotated[int, Meta(ge=0, lt=1 << 40)]], Meta(min_length=1, max_length=10_000)]
    bodies: bytes
    """Packed and concatenated."""
    starts: Annotated[list[Offset], Meta(max_length=10_001)]
    """Where each body begins, and where the last one ends."""


class SparkItem(msgspec.Struct, frozen=True, array_like=True):
    id: str
    body: bytes
    """Packed."""
    max_attempts: int
    run_us: int | None = None
    delay_us: int | None = None
    ttl_us: int | None = None


class SparkPublish(_Do, frozen=True, tag="publish"):
    """Messages with more fields than a payload. Reply: how many are new."""

    queue: str
    items: Annotated[list[SparkItem], Meta(min_length=1, max_length=10_000)]


SparkChange = SparkPut | SparkDelete | SparkLoad | SparkPublish


class SparkChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Run in this order, in one commit where the store can."""

    changes: Annotated[list[SparkChange], Meta(min_length=1, max_length=20_000)]
    again: bool = False
    """A retry after an unknown outcome: changes that are already there are no conflict."""


class SparkChanged(msgspec.Struct, frozen=True):
    replies: list[int]


class SparkLookup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One document by name, or a page of those whose names begin with a prefix."""

    kind: Kind
    name: Name | None = None
    prefix: Name | None = None
    after: Annotated[str, Meta(max_length=700)] = ""
    """The cursor of the page before."""


class SparkDocument(msgspec.Struct, frozen=True):
    name: str
    version: int
    value: bytes


class SparkDocuments(msgspec.Struct, frozen=True):
    documents: list[SparkDocument]
    cursor: str | None = None
    """Where the next page starts; None at the end."""


class SparkQueue(msgspec.Struct, frozen=True):
    """Number of messages by state."""

    counts: dict[State, int]


class SparkPlace(msgspec.Struct, frozen=True):
    """Begin and end of the journal, the server's time, and the requested position."""

    earliest: Position
    latest: Position
    now_us: int
    found: Position | None = None


class SparkQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages a snapshot has. Times are microseconds since 1970; the end is excluded."""

    columns: Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)]
    everyone: bool = False
    """All tenants; only for keys that may use any tenant."""
    queues: Annotated[tuple[str, ...], Meta(max_length=1000)] = ()
    states: tuple[State, ...] = tuple(State)
    created_from: int | None = None
    created_to: int | None = None
    ended_from: int | None = None
    ended_to: int | None = None
    ids: Annotated[tuple[str, ...], Meta(max_length=100_000)] | None = None


class SparkPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: SparkQuery
    pieces: Annotated[int, Meta(ge=1, le=10_000)] = 1


class SparkPlanned(msgspec.Struct, frozen=True):
    position: Position
    pieces: list[bytes]
    """Signed, so that the server reads only what it planned."""


class SparkPiece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    piece: bytes


CHANGES = Form(SparkChanges)
LOOKUP = Form(SparkLookup)
PLAN = Form(SparkPlan)
PIECE = Form(SparkPiece)
