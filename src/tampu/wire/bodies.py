"""Bodies of requests and responses, one struct each. The OpenAPI document is generated from them."""

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


class RequestBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Base of request bodies. Unknown fields are refused, not ignored."""


# -- publish

BatchName = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{16,64}$")]


class Publish(RequestBody):
    messages: list[NewMessage]
    once: BatchName | None = None
    """A random name, new for each batch. A request repeated under the same name stores the batch once."""


class JsonMessage(NewMessage, frozen=True, kw_only=True):
    """A message in JSON: bytes are in ``payload_base64``, any other payload is its JSON value."""

    payload: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    payload_base64: bytes | None = None

    def plain(self) -> NewMessage:
        fields: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS}
        default = JSON if self.payload_base64 is None else None
        return NewMessage(self._payload(), content_type=self.content_type or default, **fields)

    def _payload(self) -> Any:
        raw = bytes(self.payload)
        if bool(raw) is (self.payload_base64 is not None):
            raise InvalidMessage("give either payload or payload_base64", field="payload")
        if self.payload_base64 is not None:
            return self.payload_base64
        value = checked_json(raw)
        return raw if self.content_type in (None, JSON) else value


_FIELDS = tuple(name for name in NewMessage.__struct_fields__ if name not in ("payload", "content_type"))


def checked_json(raw: bytes) -> Any:
    """Decode the value; refuse what a reader could not decode."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMessage(f"the payload is not JSON: {error}", field="payload") from None


class PublishJson(RequestBody):
    messages: list[JsonMessage]
    once: BatchName | None = None


class Published(msgspec.Struct, omit_defaults=True):
    """What was stored. ``message`` is set if an existing message was found (same key, idempotency key or id), or if the
    server may have changed the message."""

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


class Claim(RequestBody):
    queues: list[str] | str
    limit: int = 1
    lease: Duration | None = None
    wait: Duration = 0
    worker: str | None = None


class Claimed(msgspec.Struct):
    leases: list[LeaseView]


class Settlement(RequestBody, kw_only=True):
    """How one lease ends."""

    verb: Literal["ack", "nack", "reject", "release"]
    receipt: str
    result: Any = None
    error: str | None = None
    traceback: str | None = None
    delay: Duration | None = None
    reason: str | None = None
    max_attempts: int | None = None
    """For nack: the message's new limit, counting this attempt."""


class Settle(RequestBody):
    settlements: list[Settlement]


class OutcomeView(msgspec.Struct, omit_defaults=True):
    """The new state of a message, or the error; after an error the message is unchanged."""

    id: str | None = None
    state: State | None = None
    error: ItemError | None = None


class Outcomes(msgspec.Struct):
    outcomes: list[OutcomeView]


class ExtendItem(RequestBody):
    receipt: str
    by: Duration | None = None


class Extend(RequestBody):
    leases: list[ExtendItem]


class ExtendedView(msgspec.Struct, omit_defaults=True):
    until: datetime | None = None
    cancel_requested: bool = False
    error: ItemError | None = None


class Extended(msgspec.Struct):
    leases: list[ExtendedView]


class Note(RequestBody):
    receipt: str
    note: Any
    by: Duration


class Noted(msgspec.Struct, omit_defaults=True):
    error: ItemError | None = None


class NoteView(msgspec.Struct):
    note: Any


# -- read and operate


class Ids(RequestBody):
    ids: Annotated[list[str], Meta(max_length=10_000)]


class Replay(RequestBody):
    """Replay by ids, or all dead messages that match ``where``."""

    ids: Annotated[list[str], Meta(max_length=10_000)] | None = None
    where: Where | None = None
    limit: int | None = None
    dry_run: bool = False


class ReplayedView(msgspec.Struct):
    messages: list[MessageView]
    outcomes: list[OutcomeView]
    dry_run: bool


class Purge(RequestBody):
    states: list[State]
    dry_run: bool = False


class Count(msgspec.Struct):
    count: int


class MessagesView(msgspec.Struct, omit_defaults=True):
    """One page. Pass ``cursor`` as ``after`` to get the next; the last page has none."""

    messages: list[MessageView]
    cursor: str | None = None


class ResultView(msgspec.Struct, omit_defaults=True):
    """``ended`` is false if the wait timed out before the message ended."""

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


class ConfigBody(RequestBody):
    """Settings to change; null means inherit. Durations are seconds or ISO 8601."""

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
    """The caller and the server it talks to."""

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
