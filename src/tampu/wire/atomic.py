"""Bodies of ``POST /v1/atomic``: the operations of a unit, and the replies in the same order."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tampu.wire.bodies import BatchName, BinaryMessage, JsonMessage, OutcomeView, Published, RequestBody, Settlement
from tampu.wire.media import Form

_MOST = 1000


class AtomicPublish(RequestBody, tag_field="op", tag="publish"):
    queue: str
    messages: Annotated[list[BinaryMessage], Meta(max_length=10_000)]


class AtomicPublishJson(RequestBody, tag_field="op", tag="publish"):
    queue: str
    messages: Annotated[list[JsonMessage], Meta(max_length=10_000)]


class AtomicSettle(Settlement, tag_field="op", tag="settle", kw_only=True):
    """How one lease ends."""


class AtomicCancel(RequestBody, tag_field="op", tag="cancel"):
    ids: Annotated[list[str], Meta(max_length=10_000)]


class AtomicFree(RequestBody, tag_field="op", tag="free"):
    ids: Annotated[list[str], Meta(max_length=10_000)]


class AtomicPutDocument(RequestBody, tag_field="op", tag="put_document"):
    """``version``: write only if this is still the current version; 0 means the document must not exist yet."""

    kind: str
    name: str
    value: msgspec.Raw
    version: int | None = None


class AtomicDeleteDocument(RequestBody, tag_field="op", tag="delete_document"):
    kind: str
    name: str


Operation = AtomicPublish | AtomicSettle | AtomicCancel | AtomicFree | AtomicPutDocument | AtomicDeleteDocument
OperationJson = AtomicPublishJson | AtomicSettle | AtomicCancel | AtomicFree | AtomicPutDocument | AtomicDeleteDocument


class Atomic(RequestBody):
    operations: Annotated[list[Operation], Meta(max_length=_MOST)]
    name: BatchName | None = None
    """A random name, new for each unit. A request repeated under the same name takes effect once."""


class AtomicJson(RequestBody):
    operations: Annotated[list[OperationJson], Meta(max_length=_MOST)]
    name: BatchName | None = None


class AtomicReply(msgspec.Struct, omit_defaults=True):
    """Exactly one field is set: ``messages`` for publish; ``outcomes`` for settle, cancel and free; ``version`` for
    put_document; ``deleted`` for delete_document."""

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
