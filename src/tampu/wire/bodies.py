"""Bodies of requests and answers, one struct each; the OpenAPI is made from them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tampu.broker.filters import Where
from tampu.model.config import Backoff, GroupBy, OnDeadline, Ordering, Status
from tampu.model.errors import InvalidMessage
from tampu.model.journal import Position, Transition
from tampu.model.message import JSON, NewMessage, State
from tampu.model.times import Duration
from tampu.wire.media import Form
from tampu.wire.messages import LeaseView, MessageView
from tampu.wire.problems import ItemError


class Asked(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A body of a request: a field nobody knows is refused, not ignored."""


# -- publish

BatchName = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{16,64}$")]


class Publish(Asked):
    messages: list[NewMessage]
    once: BatchName | None = None
    """A name for the batch, drawn anew for each: asked again under it, it is stored once."""


class JsonMessage(NewMessage, frozen=True, kw_only=True):
    """A message in JSON: bytes come as ``payload_base64``; any other payload as its value."""

    payload: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    payload_base64: bytes | None = None

    def plain(self) -> NewMessage:
        fields: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS}
        return NewMessage(self._payload(), content_type=self.content_type or self._kind(), **fields)

    def _kind(self) -> str | None:
        return JSON if self.payload_base64 is None else None

    def _payload(self) -> Any:
        raw = bytes(self.payload)
        if bool(raw) is (self.payload_base64 is not None):
            raise InvalidMessage("give payload or payload_base64", field="payload")
        if self.payload_base64 is not None:
            return self.payload_base64
        value = checked_json(raw)
        return raw if self.content_type in (None, JSON) else value


_FIELDS = tuple(name for name in NewMessage.__struct_fields__ if name not in ("payload", "content_type"))


def checked_json(raw: bytes) -> Any:
    """The value, which must be one that every reader can decode."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMessage(f"the payload is not JSON: {error}", field="payload") from None


class PublishJson(Asked):
    messages: list[JsonMessage]
    once: BatchName | None = None


class Published(msgspec.Struct, omit_defaults=True):
    """What was stored. ``message`` is there when it was found instead (same key, idempotency key or id), or when the
    server may have changed it."""

    id: str
    state: State
    created_at: datetime
    max_attempts: int
    run_at: datetime | None = None
    expires_at: datetime | None = None
    reason: str | None = None
    duplicate: bool = False
    message: MessageView | None = None


class PublishedMany(msgspec.Struct):
    messages: list[Published]


# -- claim, settle, extend


class Claim(Asked):
    queues: list[str] | str
    limit: int = 1
    lease: Duration | None = None
    wait: Duration = 0
    worker: str | None = None


class Claimed(msgspec.Struct):
    leases: list[LeaseView]


class Settlement(Asked, kw_only=True):
    """How one lease ends."""

    verb: Literal["ack", "nack", "reject", "release"]
    receipt: str
    result: Any = None
    error: str | None = None
    traceback: str | None = None
    delay: Duration | None = None
    reason: str | None = None
    max_attempts: int | None = None
    """Of a nack: the message's from now on, this attempt included."""


class Settle(Asked):
    settlements: list[Settlement]


class OutcomeView(msgspec.Struct, omit_defaults=True):
    """The state a message is in now, or the error that left it as it was."""

    id: str | None = None
    state: State | None = None
    error: ItemError | None = None


class Outcomes(msgspec.Struct):
    outcomes: list[OutcomeView]


class ExtendItem(Asked):
    receipt: str
    by: Duration | None = None


class Extend(Asked):
    leases: list[ExtendItem]


class ExtendedView(msgspec.Struct, omit_defaults=True):
    until: datetime | None = None
    cancel_requested: bool = False
    error: ItemError | None = None


class Extended(msgspec.Struct):
    leases: list[ExtendedView]


class Note(Asked):
    receipt: str
    note: Any
    by: Duration


class Noted(msgspec.Struct, omit_defaults=True):
    error: ItemError | None = None


class NoteView(msgspec.Struct):
    note: Any


# -- looking and moving


class Ids(Asked):
    ids: Annotated[list[str], Meta(max_length=10_000)]


class Replay(Asked):
    """By ids, or all dead messages that match ``where``."""

    ids: Annotated[list[str], Meta(max_length=10_000)] | None = None
    where: Where | None = None
    limit: int | None = None
    dry_run: bool = False


class ReplayedView(msgspec.Struct):
    messages: list[MessageView]
    outcomes: list[OutcomeView]
    dry_run: bool


class Purge(Asked):
    states: list[State]
    dry_run: bool = False


class Count(msgspec.Struct):
    count: int


class MessagesView(msgspec.Struct, omit_defaults=True):
    """A page; give ``cursor`` as ``after`` for the next. Without one, that was all."""

    messages: list[MessageView]
    cursor: str | None = None


class ResultView(msgspec.Struct, omit_defaults=True):
    """``ended`` is false when the time to wait was over first."""

    id: str
    state: State
    ended: bool
    result: Any = None
    result_base64: bytes | None = None
    reason: str | None = None
    last_error: str | None = None


class StatsView(msgspec.Struct):
    queue: str
    counts: dict[State, int]
    depth: int
    status: str
    oldest_ready_age: float | None
    """Seconds."""


class StatsMany(msgspec.Struct):
    queues: list[StatsView]


class QueueNames(msgspec.Struct):
    queues: list[str]


class ConfigBody(Asked):
    """Settings to change; null inherits again. Durations are seconds or ISO 8601."""

    status: Status | msgspec.UnsetType | None = msgspec.UNSET
    ordering: Ordering | msgspec.UnsetType | None = msgspec.UNSET
    ageing: Duration | msgspec.UnsetType | None = msgspec.UNSET
    group_order: bool | msgspec.UnsetType | None = msgspec.UNSET
    group_concurrency: int | msgspec.UnsetType | None = msgspec.UNSET
    group_rate: float | str | msgspec.UnsetType | None = msgspec.UNSET
    group_burst: int | msgspec.UnsetType | None = msgspec.UNSET
    group_by: GroupBy | msgspec.UnsetType | None = msgspec.UNSET
    max_attempts: int | msgspec.UnsetType | None = msgspec.UNSET
    lease: Duration | msgspec.UnsetType | None = msgspec.UNSET
    backoff: Backoff | list[Duration] | float | msgspec.UnsetType | None = msgspec.UNSET
    ttl: Duration | msgspec.UnsetType | None = msgspec.UNSET
    on_deadline: OnDeadline | msgspec.UnsetType | None = msgspec.UNSET
    result_ttl: Duration | msgspec.UnsetType | None = msgspec.UNSET
    retention: Duration | msgspec.UnsetType | None = msgspec.UNSET
    idempotency_window: Duration | msgspec.UnsetType | None = msgspec.UNSET
    max_depth: int | msgspec.UnsetType | None = msgspec.UNSET
    max_in_flight: int | msgspec.UnsetType | None = msgspec.UNSET
    rate: float | str | msgspec.UnsetType | None = msgspec.UNSET
    burst: int | msgspec.UnsetType | None = msgspec.UNSET
    max_payload: int | msgspec.UnsetType | None = msgspec.UNSET


class JournalView(msgspec.Struct):
    transitions: list[Transition]
    position: Position
    latest: Position


class Deleted(msgspec.Struct):
    deleted: bool


class CheckItem(msgspec.Struct):
    what: str
    level: Literal["ok", "warn", "bad"]
    note: str


class Checks(msgspec.Struct):
    checks: list[CheckItem]


class Me(msgspec.Struct):
    """Who asks, and of what server."""

    tenant: str
    name: str
    permissions: list[str]
    durability: str
    version: str
    atomic: str = "eventual"
    """How units become visible: ``isolated`` or ``eventual``."""


PUBLISH = Form(Publish, PublishJson)
CLAIM = Form(Claim)
SETTLE = Form(Settle)
EXTEND = Form(Extend)
NOTE = Form(Note)
IDS = Form(Ids)
REPLAY = Form(Replay)
PURGE = Form(Purge)
CONFIG = Form(ConfigBody)
