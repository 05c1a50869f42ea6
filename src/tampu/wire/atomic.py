"""Bodies of units: the operations of a request, and the replies to them in the same order."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tampu.model.message import NewMessage
from tampu.wire.bodies import Asked, BatchName, JsonMessage, OutcomeView, Published, Settlement
from tampu.wire.media import Form

_MOST = 1000


class AtomicPublish(Asked, tag_field="op", tag="publish"):
    queue: str
    messages: list[NewMessage]


class AtomicPublishJson(Asked, tag_field="op", tag="publish"):
    queue: str
    messages: list[JsonMessage]


class AtomicSettle(Settlement, tag_field="op", tag="settle", kw_only=True):
    """How one lease ends."""


class AtomicCancel(Asked, tag_field="op", tag="cancel"):
    ids: Annotated[list[str], Meta(max_length=10_000)]


class AtomicFree(Asked, tag_field="op", tag="free"):
    ids: Annotated[list[str], Meta(max_length=10_000)]


class AtomicPutDocument(Asked, tag_field="op", tag="put_document"):
    """With ``version`` only if that is still its version; 0: it must be new."""

    kind: str
    name: str
    value: Any
    version: int | None = None


class AtomicDeleteDocument(Asked, tag_field="op", tag="delete_document"):
    kind: str
    name: str


Operation = AtomicPublish | AtomicSettle | AtomicCancel | AtomicFree | AtomicPutDocument | AtomicDeleteDocument
OperationJson = AtomicPublishJson | AtomicSettle | AtomicCancel | AtomicFree | AtomicPutDocument | AtomicDeleteDocument


class Atomic(Asked):
    operations: Annotated[list[Operation], Meta(max_length=_MOST)]
    name: BatchName | None = None
    """A name for the unit, drawn anew for each: asked again under it, it takes effect once."""


class AtomicJson(Asked):
    operations: Annotated[list[OperationJson], Meta(max_length=_MOST)]
    name: BatchName | None = None


class AtomicReply(msgspec.Struct, omit_defaults=True):
    """Of a publish its messages; of settle, cancel and free the outcomes; of a document its version, or if it was
    there."""

    messages: list[Published] | None = None
    outcomes: list[OutcomeView] | None = None
    version: int | None = None
    deleted: bool | None = None


class AtomicReplies(msgspec.Struct):
    replies: list[AtomicReply]


class DocumentView(msgspec.Struct):
    kind: str
    name: str
    version: int
    value: Any


ATOMIC = Form(Atomic, AtomicJson)
