"""A message as it is published (`NewMessage`), stored (`Body`), read (`Message`) and claimed (`Lease`)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from tampu.model.decoders import from_msgpack
from tampu.model.reviews import MessageReview, read_message_review
from tampu.model.states import State as State  # noqa: PLC0414 - a field of Message: imported with it
from tampu.model.times import Duration, moment, moment_or_none

JSON = "application/json"
BYTES = "application/octet-stream"
MSGPACK = "application/msgpack"
TEXT = "text/plain"


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A payload that is already encoded, as HTTP requests have it."""

    payload: bytes
    content_type: str
    type: str = "message"


class NewMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One message to publish. Only the payload is required; the fields are those of `Store.publish`."""

    payload: Any
    type: str | None = None
    priority: int = 0
    delay: Duration | None = None
    run_at: datetime | None = None
    ttl: Duration | None = None
    deadline: datetime | None = None
    key: str | None = None
    idempotency_key: str | None = None
    labels: dict[str, str] | None = None
    headers: dict[str, str] | None = None
    max_attempts: int | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    parent_id: str | None = None
    group: str | None = None
    source: str | None = None
    content_type: str | None = None
    hold: str | None = None
    """Publish it as ``held``, for this reason; `Store.free` makes it ready."""
    id: str | None = None
    """An id of your own (a UUID). If a message with this id exists, it is returned and nothing is stored."""
    review: str | dict[str, Any] | None = None
    """Hold it until a person has decided: the name of a pattern, or a review. See `store.patterns`."""


def to_new(new: Any) -> NewMessage:
    """A `NewMessage` of what is passed to publish: a message, or a payload, encoded or not."""
    if type(new) is NewMessage:
        return new
    if type(new) is Encoded:
        return NewMessage(new.payload, new.type, content_type=new.content_type)
    return NewMessage(new)


class Body(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What never changes, packed once at publish. Add fields at the end, with a default: old rows stay readable."""

    type: str
    payload: bytes
    content_type: str = JSON
    priority: int = 0
    headers: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    deadline: int | None = None
    key: str | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    parent_id: str | None = None
    group: str | None = None
    source: str | None = None
    hold: str | None = None
    own_max_attempts: int | None = None
    """What the publisher set; None: the setting of the queue, also on replay."""
    dead_at_deadline: bool = False
    """If it still waits at its deadline, it becomes dead instead of expired."""
    review: str | None = None
    """A `MessageReview` as JSON: the review that it waits for, later with the decision."""


unpack_body = from_msgpack(Body).decode


def decode(raw: bytes, content_type: str) -> Any:
    """The value of encoded bytes, by their content type. Bytes of an unknown type stay bytes."""
    if content_type == JSON:
        return msgspec.json.decode(raw)
    if content_type == MSGPACK:
        return msgspec.msgpack.decode(raw)
    if content_type.startswith("text/"):
        return raw.decode()
    return raw


class Failure(msgspec.Struct, frozen=True):
    """A failed attempt."""

    attempt: int
    at: datetime
    outcome: str
    """``nack``, ``reject`` or ``lease_expired``"""
    worker: str | None
    error: str | None
    traceback: str | None


class Progress(msgspec.Struct, frozen=True):
    """How far a task says that it is."""

    done: float
    """From 0 to 1."""
    note: str | None = None


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as it was when it was read."""

    id: str
    tenant: str
    queue: str
    state: State
    body: Body
    attempts: int
    max_attempts: int
    created_us: int
    run_us: int | None = None
    expires_us: int | None = None
    ended_us: int | None = None
    reason: str | None = None
    """Why it is dead or held."""
    last_error: str | None = None
    failures: tuple[Failure, ...] = ()
    """Failed attempts, oldest first; only `Store.get` fills it."""
    result_raw: bytes | None = None
    cancel_requested: bool = False
    duplicate: bool = False
    """True if `publish` found this message, by idempotency key, key or id, and stored no new one."""
    worker: str | None = None
    """Who works on it, while it is leased and read by `Store.get` or `Store.list`; so are the next three."""
    lease_until_us: int | None = None
    started_us: int | None = None
    updated_us: int | None = None
    progress: Progress | None = None
    """What its task has reported, while it is leased; only `Store.get` fills it."""

    @property
    def payload(self) -> Any:
        """The payload, decoded by its content type."""
        return decode(self.body.payload, self.body.content_type)

    @property
    def raw(self) -> bytes:
        return self.body.payload

    @property
    def content_type(self) -> str:
        return self.body.content_type

    @property
    def type(self) -> str:
        return self.body.type

    @property
    def priority(self) -> int:
        return self.body.priority

    @property
    def headers(self) -> dict[str, str]:
        return self.body.headers or {}

    @property
    def labels(self) -> dict[str, str]:
        return self.body.labels or {}

    @property
    def key(self) -> str | None:
        return self.body.key

    @property
    def idempotency_key(self) -> str | None:
        return self.body.idempotency_key

    @property
    def correlation_id(self) -> str | None:
        return self.body.correlation_id

    @property
    def causation_id(self) -> str | None:
        return self.body.causation_id

    @property
    def parent_id(self) -> str | None:
        return self.body.parent_id

    @property
    def group(self) -> str | None:
        return self.body.group

    @property
    def source(self) -> str | None:
        return self.body.source

    @property
    def review(self) -> MessageReview | None:
        """The review that it was published with or a task asked for; its ``decision`` when there is one."""
        return None if self.body.review is None else read_message_review(self.body.review)

    @property
    def created_at(self) -> datetime:
        return moment(self.created_us)

    @property
    def deadline(self) -> datetime | None:
        return moment_or_none(self.body.deadline)

    @property
    def run_at(self) -> datetime | None:
        """When it will be ready, while it is delayed."""
        return moment_or_none(self.run_us)

    @property
    def expires_at(self) -> datetime | None:
        return moment_or_none(self.expires_us)

    @property
    def ended_at(self) -> datetime | None:
        return moment_or_none(self.ended_us)

    @property
    def lease_until(self) -> datetime | None:
        """When the lease of its worker ends, unless that extends it."""
        return moment_or_none(self.lease_until_us)

    @property
    def started_at(self) -> datetime | None:
        """When its worker has claimed it."""
        return moment_or_none(self.started_us)

    @property
    def updated_at(self) -> datetime | None:
        """When its worker has last extended the lease: it was alive then."""
        return moment_or_none(self.updated_us)

    @property
    def result(self) -> Any:
        """The result that was passed to `ack`, for the queue's ``result_ttl``."""
        return None if self.result_raw is None else msgspec.msgpack.decode(self.result_raw)


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A claimed message. Settle or extend it before ``until``."""

    message: Message
    receipt: str
    until_us: int
    worker: str | None = None

    @property
    def until(self) -> datetime:
        return moment(self.until_us)

    @property
    def attempt(self) -> int:
        """The number of this delivery, from 1."""
        return self.message.attempts

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def queue(self) -> str:
        return self.message.queue

    @property
    def payload(self) -> Any:
        return self.message.payload
