"""What Spark and a server say to each other beside Arrow: the bodies of ``/v1/spark/…``.

Documents that belong to a job are named by the queue it publishes to, ``queue/name``, or ``*/name`` if it may publish
to any: the server knows by the name who may touch them.
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
"""Metadata of the last batch, which is empty: how many rows were sent before it. Without it something is missing."""
PROBLEM = b"tampu.problem"
"""Metadata of the last batch when something went wrong in the middle."""
ANY = "*"

Kind = Annotated[str, Meta(max_length=64)]
Name = Annotated[str, Meta(min_length=1, max_length=700)]
Offset = Annotated[int, Meta(ge=0, lt=1 << 62)]


class _Do(msgspec.Struct, frozen=True, tag_field="do", forbid_unknown_fields=True):
    pass


class SparkPut(_Do, frozen=True, tag="put"):
    """Write a document; with ``version`` only if that is still its version. Reply: the new version."""

    kind: Kind
    name: Name
    value: bytes
    version: Offset | None = None


class SparkDelete(_Do, frozen=True, tag="delete"):
    """Reply: 1 if it was there."""

    kind: Kind
    name: Name


class SparkLoad(_Do, frozen=True, tag="load"):
    """Plain messages, whose ids are the stem and their numbers. Reply: how many were not there yet."""

    queue: str
    id_prefix: bytes
    numbers: Annotated[list[Annotated[int, Meta(ge=0, lt=1 << 40)]], Meta(min_length=1)]
    bodies: bytes
    """Packed, one after the other."""
    starts: list[Offset]
    """Where each begins, and where the last one ends."""


class SparkItem(msgspec.Struct, frozen=True, array_like=True):
    id: str
    body: bytes
    """Packed."""
    max_attempts: int
    run_us: int | None = None
    delay_us: int | None = None
    ttl_us: int | None = None


class SparkPublish(_Do, frozen=True, tag="publish"):
    """Messages with more than a payload. Reply: how many are new."""

    queue: str
    items: Annotated[list[SparkItem], Meta(min_length=1)]


SparkChange = SparkPut | SparkDelete | SparkLoad | SparkPublish


class SparkChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Carried out in their order; in one commit where the store can."""

    changes: Annotated[list[SparkChange], Meta(min_length=1, max_length=20_000)]
    again: bool = False
    """Sent before, and nobody knows whether it was carried out: what is there already is no conflict."""


class SparkChanged(msgspec.Struct, frozen=True):
    replies: list[int]


class SparkLookup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One document by its name, or all that begin with a prefix."""

    kind: Kind
    name: Name | None = None
    prefix: Name | None = None


class SparkDocument(msgspec.Struct, frozen=True):
    name: str
    version: int
    value: bytes


class SparkDocuments(msgspec.Struct, frozen=True):
    documents: list[SparkDocument]


class SparkQueue(msgspec.Struct, frozen=True):
    """How many messages are in each state."""

    counts: dict[State, int]


class SparkPlace(msgspec.Struct, frozen=True):
    """Where the journal begins and ends, the time on the server's clock, and the position that was asked for."""

    earliest: Position
    latest: Position
    now_us: int
    found: Position | None = None


class SparkQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages a snapshot is of. Times are microseconds since 1970, the end not included."""

    columns: Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)]
    everyone: bool = False
    """Of all tenants; for keys that may act in any."""
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
    """Signed: the server reads only what it planned."""


class SparkPiece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    piece: bytes


CHANGES = Form(SparkChanges)
LOOKUP = Form(SparkLookup)
PLAN = Form(SparkPlan)
PIECE = Form(SparkPiece)
