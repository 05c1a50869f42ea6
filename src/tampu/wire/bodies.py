"""Bodies of requests and responses, one struct each. The OpenAPI document is generated from them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tampu.broker.admin.filters import Where
from tampu.model.agents import Agent
from tampu.model.config import Backoff, ConsumerMode, GroupBy, OnDeadline, OnInvalid, Ordering, Status
from tampu.model.errors import InvalidMessage
from tampu.model.grants import END
from tampu.model.journal import FollowerStatus, Position, Transition
from tampu.model.message import JSON, MSGPACK, NewMessage, State
from tampu.model.times import Seconds
from tampu.wire.media import GROWTH, Form, decode_part
from tampu.wire.messages import LeaseView, MessageView
from tampu.wire.problems import ItemError

_MOST = Meta(max_length=10_000)
"""MessagePack is refused before such a list is decoded."""
_PAIRS = Meta(max_length=64)


class RequestBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Base of request bodies. Unknown fields are refused, not ignored."""


# -- publish

BatchName = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9_-]{{16,64}}{END}")]


class BinaryMessage(NewMessage, frozen=True):
    """A message in MessagePack. The payload is decoded only when it is known to fit."""

    payload: msgspec.Raw
    delay: Seconds | None = None
    ttl: Seconds | None = None
    labels: Annotated[dict[str, str], _PAIRS] | None = None
    headers: Annotated[dict[str, str], _PAIRS] | None = None

    def plain(self, most: int) -> NewMessage:
        """``most``: the maximum bytes of a payload in the queue."""
        payload = decode_part(self.payload, MSGPACK, most, "payload", GROWTH)
        return NewMessage(payload, *msgspec.structs.astuple(self)[1:])


class Publish(RequestBody):
    messages: Annotated[list[BinaryMessage], _MOST]
    once: BatchName | None = None
    """A random name, new for each batch. A request repeated under the same name stores the batch once."""


class JsonMessage(NewMessage, frozen=True, kw_only=True):
    """A message in JSON: bytes are in ``payload_base64``, any other payload is its JSON value."""

    payload: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    payload_base64: bytes | None = None
    delay: Seconds | None = None
    ttl: Seconds | None = None

    def plain(self, most: int) -> NewMessage:
        """``most``: the maximum bytes of a payload in the queue."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS}
        default = JSON if self.payload_base64 is None else None
        return NewMessage(self._payload(most), content_type=self.content_type or default, **fields)

    def _payload(self, most: int) -> Any:
        raw = bytes(self.payload)
        if bool(raw) is (self.payload_base64 is not None):
            raise InvalidMessage("give either payload or payload_base64", field="payload")
        if self.payload_base64 is not None:
            return self.payload_base64
        if self.content_type in (None, JSON):
            decode_part(raw, JSON, most, "payload")
            return raw
        return decode_part(raw, JSON, most, "payload", GROWTH)


_FIELDS = tuple(name for name in NewMessage.__struct_fields__ if name not in ("payload", "content_type"))


class PublishJson(RequestBody):
    messages: Annotated[list[JsonMessage], _MOST]
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
    queues: Annotated[list[str], Meta(max_length=1000)] | str
    limit: int = 1
    lease: Seconds | None = None
    wait: Seconds = 0
    worker: str | None = None


class Claimed(msgspec.Struct):
    leases: list[LeaseView]


class Settlement(RequestBody, kw_only=True):
    """How one lease ends."""

    verb: Literal["ack", "nack", "reject", "release"]
    receipt: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: str | None = None
    traceback: str | None = None
    delay: Seconds | None = None
    reason: str | None = None
    max_attempts: int | None = None
    """For nack: the message's new limit, counting this attempt."""


class Settle(RequestBody):
    settlements: Annotated[list[Settlement], _MOST]


class OutcomeView(msgspec.Struct, omit_defaults=True):
    """The new state of a message, or the error; after an error the message is unchanged."""

    id: str | None = None
    state: State | None = None
    error: ItemError | None = None


class Outcomes(msgspec.Struct):
    outcomes: list[OutcomeView]


class ExtendItem(RequestBody):
    receipt: str
    by: Seconds | None = None


class Extend(RequestBody):
    leases: Annotated[list[ExtendItem], _MOST]


class ExtendedView(msgspec.Struct, omit_defaults=True):
    until: datetime | None = None
    cancel_requested: bool = False
    error: ItemError | None = None


class Extended(msgspec.Struct):
    leases: list[ExtendedView]


class Note(RequestBody):
    receipt: str
    note: Any
    by: Seconds


class Noted(msgspec.Struct, omit_defaults=True):
    error: ItemError | None = None


class NoteView(msgspec.Struct):
    note: Any


# -- read and operate


class Ids(RequestBody):
    ids: Annotated[list[str], _MOST]


class Replay(RequestBody):
    """Replay by ids, or all dead messages that match ``where``."""

    ids: Annotated[list[str], _MOST] | None = None
    where: Where | None = None
    limit: int | None = None
    dry_run: bool = False
    after: str | None = None
    """The ``cursor`` of the answer before."""


class ReplayedView(msgspec.Struct, omit_defaults=True):
    """One part. Pass ``cursor`` as ``after`` for the next; the last part has none."""

    messages: list[MessageView]
    outcomes: list[OutcomeView]
    dry_run: bool
    cursor: str | None = None


class Purge(RequestBody):
    states: Annotated[list[State], Meta(max_length=100)]
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


class ConfigSources(msgspec.Struct, frozen=True):
    """By setting: the queue itself, a scope such as `shop.*`, `*`, or `built in`."""

    sources: dict[str, str]


class QueueNames(msgspec.Struct):
    queues: list[str]


class ConfigBody(RequestBody):
    """Settings to change; null means inherit. Durations are seconds or ISO 8601."""

    status: Status | msgspec.UnsetType | None = msgspec.UNSET
    ordering: Ordering | msgspec.UnsetType | None = msgspec.UNSET
    ageing: Seconds | msgspec.UnsetType | None = msgspec.UNSET
    group_order: bool | msgspec.UnsetType | None = msgspec.UNSET
    group_concurrency: int | msgspec.UnsetType | None = msgspec.UNSET
    group_rate: float | str | msgspec.UnsetType | None = msgspec.UNSET
    group_burst: int | msgspec.UnsetType | None = msgspec.UNSET
    group_by: GroupBy | msgspec.UnsetType | None = msgspec.UNSET
    max_attempts: int | msgspec.UnsetType | None = msgspec.UNSET
    lease: Seconds | msgspec.UnsetType | None = msgspec.UNSET
    backoff: Backoff | list[Seconds] | float | msgspec.UnsetType | None = msgspec.UNSET
    ttl: Seconds | msgspec.UnsetType | None = msgspec.UNSET
    on_deadline: OnDeadline | msgspec.UnsetType | None = msgspec.UNSET
    consumer_mode: ConsumerMode | msgspec.UnsetType | None = msgspec.UNSET
    on_invalid: OnInvalid | msgspec.UnsetType | None = msgspec.UNSET
    result_ttl: Seconds | msgspec.UnsetType | None = msgspec.UNSET
    retention: Seconds | msgspec.UnsetType | None = msgspec.UNSET
    dead_retention: Seconds | msgspec.UnsetType | None = msgspec.UNSET
    max_dead: int | msgspec.UnsetType | None = msgspec.UNSET
    dead_letter_to: str | msgspec.UnsetType | None = msgspec.UNSET
    idempotency_window: Seconds | msgspec.UnsetType | None = msgspec.UNSET
    max_depth: int | msgspec.UnsetType | None = msgspec.UNSET
    max_in_flight: int | msgspec.UnsetType | None = msgspec.UNSET
    rate: float | str | msgspec.UnsetType | None = msgspec.UNSET
    burst: int | msgspec.UnsetType | None = msgspec.UNSET
    max_payload: int | msgspec.UnsetType | None = msgspec.UNSET


class JournalView(msgspec.Struct):
    transitions: list[Transition]
    position: Position
    latest: Position


class FollowersView(msgspec.Struct):
    followers: list[FollowerStatus]


class AgentsView(msgspec.Struct):
    agents: list[Agent]


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
    everywhere: list[str] = []
    """Permissions that the caller has in all queues."""
    all_tenants: bool = False
    """True if the caller may act in every tenant."""


PUBLISH = Form(Publish, PublishJson)
CLAIM = Form(Claim)
SETTLE = Form(Settle)
EXTEND = Form(Extend)
NOTE = Form(Note, has_any=True)
IDS = Form(Ids)
REPLAY = Form(Replay)
PURGE = Form(Purge)
CONFIG = Form(ConfigBody)
