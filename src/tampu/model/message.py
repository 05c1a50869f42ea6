"""A message as it is handed in (`NewMessage`), kept (`Body`), seen (`Message`) and worked on (`Lease`)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from tampu.model.decoders import from_msgpack
from tampu.model.states import State as State  # noqa: PLC0414 - a field of Message: imported with it
from tampu.model.times import Duration, moment, moment_or_none

JSON = "application/json"
BYTES = "application/octet-stream"
MSGPACK = "application/msgpack"
TEXT = "text/plain"


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A payload that is encoded already, as it comes over the network."""

    payload: bytes
    content_type: str
    type: str = "message"


class NewMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One message to publish. Only the payload is needed; the fields are those of `Queue.publish`."""

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
    """Publish into ``held``, with this as the reason; `Queue.free` lets it go."""
    id: str | None = None
    """An id of your own (a UUID); a message with this id that is already there is answered, not stored again."""


def to_new(new: Any) -> NewMessage:
    """What is given to publish, as a message: it may be a payload, encoded or not."""
    if type(new) is NewMessage:
        return new
    if type(new) is Encoded:
        return NewMessage(new.payload, new.type, content_type=new.content_type)
    return NewMessage(new)


class Body(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What never changes, packed once at publish. New fields go to the end, with a default: old rows stay readable."""

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
    """What the publisher asked for; None: the queue's setting decides, on replay too."""
    dead_at_deadline: bool = False
    """If it still waits at its deadline it is dead, not expired."""


unpack_body = from_msgpack(Body).decode


def decode(raw: bytes, content_type: str) -> Any:
    """The value of encoded bytes, by their content type; bytes of an unknown type stay bytes."""
    if content_type == JSON:
        return msgspec.json.decode(raw)
    if content_type == MSGPACK:
        return msgspec.msgpack.decode(raw)
    if content_type.startswith("text/"):
        return raw.decode()
    return raw


class Failure(msgspec.Struct, frozen=True):
    """One attempt that did not succeed."""

    attempt: int
    at: datetime
    outcome: str
    """``nack``, ``reject`` or ``lease_expired``"""
    worker: str | None
    error: str | None
    traceback: str | None


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as it stood when it was read."""

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
    """The attempts that failed, oldest first (filled by `Queue.get`)."""
    result_raw: bytes | None = None
    cancel_requested: bool = False
    duplicate: bool = False
    """`publish` found this message instead of storing a new one (same idempotency key, key or id)."""

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
    def created_at(self) -> datetime:
        return moment(self.created_us)

    @property
    def deadline(self) -> datetime | None:
        return moment_or_none(self.body.deadline)

    @property
    def run_at(self) -> datetime | None:
        """When it is due, while it is delayed."""
        return moment_or_none(self.run_us)

    @property
    def expires_at(self) -> datetime | None:
        return moment_or_none(self.expires_us)

    @property
    def ended_at(self) -> datetime | None:
        return moment_or_none(self.ended_us)

    @property
    def result(self) -> Any:
        """What `ack` was given, for as long as ``result_ttl`` keeps it."""
        return None if self.result_raw is None else msgspec.msgpack.decode(self.result_raw)


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A claim on one message. Settle it before ``until``, or extend it."""

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
