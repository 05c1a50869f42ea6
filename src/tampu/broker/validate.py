"""Checks what users pass in, and packs messages for the engine. Every value has a limit; nothing is guessed.

`items` makes the engine's `Item`s. It has two faster ways for the most common messages, with the same result: payloads
alone (`payload_items`), and messages without options (`_item_without_options`).
"""

from __future__ import annotations

import hashlib
import re
import traceback as tracebacks
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from tampu import tracing
from tampu.broker.settings import Settings
from tampu.engines.port import Item
from tampu.model.config import SYSTEM
from tampu.model.errors import InvalidMessage, PayloadTooLarge, QueueClosed
from tampu.model.journal import Position
from tampu.model.message import BYTES, JSON, MSGPACK, Body, Encoded, NewMessage, decode, to_new
from tampu.model.reviews import HOLD
from tampu.model.times import duration, instant, moment_or_none
from tampu.model.values import NOT_ENCODED, NotKept, encode, encode_result, encode_simple, pack_body, pack_payload

MOST_MESSAGES = 10_000
MOST_CLAIM = 10_000
_PRIORITY = 1_000_000_000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,127}\Z")
_SUBSCRIPTION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,62}@[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,62}\Z")
_TYPE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/\-]{0,199}\Z")
_CONTENT_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+\-]{1,100}/[A-Za-z0-9!#$&^_.+\-; =]{1,150}\Z")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
_ERROR_CHARACTERS = 8_192
_TRACEBACK_CHARACTERS = 32_768
_MOST_REVIEW = 16 * 1024

_USUAL = frozenset({BYTES, JSON})
_RAW = (bytes, bytearray, memoryview)
_MESSAGES = frozenset({NewMessage, Encoded})


_OF_QUEUES = ("queue", "receipt", "name", "subscription")
"""Fields whose names may be those of a subscription's queue."""


def name(value: Any, field: str) -> str:
    """The name of a queue or tenant."""
    if field == "queue" and isinstance(value, str) and value.startswith(SYSTEM):
        raise InvalidMessage(f"names that begin with {SYSTEM} are reserved", field=field, hint="use another name")
    if not isinstance(value, str) or not (_NAME.match(value) or (field in _OF_QUEUES and _SUBSCRIPTION.match(value))):
        raise InvalidMessage(
            f"{value!r:.150} is not a {field} name",
            field=field,
            hint="1 to 128 of A-Z a-z 0-9 _ . : - starting with a letter, digit or _",
        )
    return value


def any_queue(value: Any) -> str:
    """The name of a queue, also of one of tampu's own."""
    return name(value, "name" if isinstance(value, str) and value.startswith(SYSTEM) else "queue")


def queue_or_scope(value: Any, *, system: bool = False) -> str:
    """The name of a queue, a scope such as ``shop.*``, or ``*`` for all queues; with ``system`` also tampu's own."""
    if value != "*":
        checked = value.removesuffix(".*") if isinstance(value, str) else value
        any_queue(checked) if system else name(checked, "queue")
    return str(value)


def type_name(value: Any) -> str:
    if not isinstance(value, str) or not _TYPE.match(value):
        raise InvalidMessage(
            f"{value!r:.100} is not a type name",
            field="type",
            hint="a dotted name such as email.send, at most 200 long",
        )
    return value


def text(value: Any, field: str, longest: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= longest:
        raise InvalidMessage(f"{field} must be a text of 1 to {longest} characters", field=field)
    _encodable(value, field)
    return value


def _encodable(value: str, field: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidMessage(f"{field} holds characters that are not valid Unicode", field=field) from None


def pairs(value: Any, field: str) -> dict[str, str] | None:
    """Headers or labels; none of them is None."""
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) > 64:
        raise InvalidMessage(f"{field} must be a mapping of at most 64 texts", field=field)
    for key, entry in value.items():
        text(key, field, 128)
        if not isinstance(entry, str) or len(entry) > 2048:
            raise InvalidMessage(f"{field}[{key!r}] must be a text of at most 2048 characters", field=field)
        _encodable(entry, field)
    return value or None


def id_text(value: Any, field: str = "id") -> str:
    """A message id in its canonical form."""
    if type(value) is str and _ID.match(value):  # nearly always; ten times as fast
        return value
    try:
        if isinstance(value, uuid.UUID):
            return str(value)
        if isinstance(value, str) and len(value) <= 45:
            return str(uuid.UUID(value))
    except ValueError:
        pass
    raise InvalidMessage(f"{value!r:.100} is not a message id", field=field, hint="ids are UUIDs; publish returns them")


def whole(value: Any, field: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidMessage(f"{field} must be a whole number between {least} and {most}", field=field)
    return value


def claim(queues: Any, limit: Any, lease: Any, worker: Any) -> tuple[list[str], int | None]:
    """(the queues to claim from, the lease in microseconds)"""
    names = [queues] if isinstance(queues, str) else list(queues) if isinstance(queues, Iterable) else []
    if not 0 < len(names) <= 1000:
        raise InvalidMessage("name 1 to 1000 queues", field="queues")
    for queue in names:
        name(queue, "queue")
    whole(limit, "limit", 1, MOST_CLAIM)
    if worker is not None:
        text(worker, "worker", 256)
    return names, None if lease is None else duration(lease, "lease", zero=False)


def position(after: Any) -> Position | None:
    """A position in the journal; a number is a position in partition 0."""
    found = {"0": after} if isinstance(after, int) and not isinstance(after, bool) else after
    if found is not None and not (
        isinstance(found, dict)
        and all(isinstance(k, str) and isinstance(v, int) and 0 <= v < 1 << 62 for k, v in found.items())
    ):
        raise InvalidMessage("after must be a position that journal returned", field="after")
    return found


def check_open(queue: str, settings: Settings) -> None:
    if settings.status in ("draining", "closed"):
        raise QueueClosed(
            f"queue {queue} is {settings.status}: it takes no messages", field="queue", hint="resume it first"
        )


class Payloads(NamedTuple):
    """JSON payloads of messages that have nothing else but a type, which is the same for all."""

    type: str
    raws: list[bytes]
    values: list[Any]
    """The payloads, decoded."""

    def items(self, settings: Settings) -> list[Item]:
        """The items of a queue in which every one is ready at once (`Settings.simple`)."""
        kind, attempts, ordering = self.type, settings.max_attempts, settings.ordering
        return [Item(Body(kind, raw), pack_payload(kind, raw, JSON), attempts, ordering) for raw in self.raws]


def payloads(settings: Settings, news: Sequence[NewMessage | Any]) -> Payloads | None:
    """A plain batch of a queue, as columns; None if it is none, or something is wrong with it."""
    kinds = set(map(type, news))
    if not settings.simple or (len(kinds) > 1 and not kinds.isdisjoint(_MESSAGES)):
        return None
    first, values, kind = news[0], news, None
    if first.__class__ in _MESSAGES:
        kind, content_type = first.type, first.content_type
        if not all(new.type == kind and new.content_type == content_type for new in news):
            return None
        if type(first) is NewMessage and not all(new.id is None and _has_no_options(new) for new in news):
            return None
        values = [new.payload for new in news]
        if content_type is not None:
            return _encoded(settings, kind, values) if content_type == JSON else None
    found = encode_simple(values)
    if found is None or max(map(len, found[0])) > settings.max_payload:
        return None
    return Payloads("message" if kind is None else type_name(kind), *found)


def _encoded(settings: Settings, kind: str | None, values: Sequence[Any]) -> Payloads | None:
    """Payloads that are JSON already."""
    if set(map(type, values)) != {bytes} or max(map(len, values)) > settings.max_payload:
        return None
    try:
        decoded = [decode(value, JSON) for value in values]
    except (ValueError, msgspec.MsgspecError):
        return None
    return Payloads("message" if kind is None else type_name(kind), list(values), decoded)


def items(
    queue: str, settings: Settings, news: Sequence[NewMessage | Any]
) -> tuple[list[Item], bool, Sequence[Any] | None]:
    """Messages or payloads as items for the engine; whether the batch is simple, which is decided only here; and the
    decoded payloads, where they are known."""
    if settings.group_by != "type" and not any(type(new) is NewMessage for new in news):
        made, values = payload_items(settings, news)
        return made, settings.simple, values
    made, simple = [], settings.simple
    for new in map(to_new, news):
        if settings.group_by != "type" and _has_no_options(new):
            item = _item_without_options(settings, new)
        else:
            item = _full_item(queue, settings, new)
            simple = simple and is_simple(item)
        simple = simple and item.id is None
        made.append(item)
    return made, simple, None


def is_simple(item: Item) -> bool:
    """True if the item is ready at once at rank 0, with nothing to look up or to expire.

    A priority, deadline or group counts even if the ordering ignores it: the queue may get another ordering. The id is
    not checked: `Load` takes messages with ids of their own, a simple `Publish` does not.
    """
    body = item.body
    return not (
        item.run_us is not None
        or item.delay_us
        or item.ttl_us
        or body.priority
        or body.deadline is not None
        or body.group is not None
        or body.key
        or body.idempotency_key
        or body.correlation_id
        or body.hold
        or (item.ordering == "priority" and item.ageing_us)
        or item.ordering in ("deadline", "fair")
    )


def item(queue: str, settings: Settings, new: NewMessage) -> Item:
    """One message as an item for the engine."""
    if settings.group_by != "type" and _has_no_options(new):
        return _item_without_options(settings, new)
    return _full_item(queue, settings, new)


def _full_item(queue: str, settings: Settings, new: NewMessage) -> Item:
    body = _body(new, settings)
    if settings.group_by == "type" and body.group is None:
        body = msgspec.structs.replace(body, group=body.type)
    if new.delay is not None and new.run_at is not None:
        raise InvalidMessage("give delay or run_at, not both", field="delay")
    return Item(
        body,
        pack_body(body),
        settings.max_attempts if body.own_max_attempts is None else body.own_max_attempts,
        settings.ordering,
        settings.ageing_us,
        None if new.run_at is None else instant(new.run_at, "run_at"),
        None if new.delay is None else duration(new.delay, "delay"),
        settings.ttl_us if new.ttl is None else duration(new.ttl, "ttl", zero=False),
        None if settings.slots is None else body.group,
        None if body.idempotency_key is None else _digest(queue, body),
        settings.idempotency_us,
        None if new.id is None else id_text(new.id),
        None if settings.on_deadline == "keep" else body.deadline,
    )


_OF_BODY = tuple(
    name
    for name in Body.__struct_fields__
    if name not in ("deadline", "own_max_attempts", "dead_at_deadline", "review")
)


def from_body(body: Body, **more: Any) -> NewMessage:
    """A message to publish with the fields of a packed body; ``more`` adds or replaces fields."""
    fields = {name: getattr(body, name) for name in _OF_BODY}
    fields |= {"deadline": moment_or_none(body.deadline), "max_attempts": body.own_max_attempts}
    if body.review is not None:
        fields["review"] = msgspec.json.decode(body.review)
    return NewMessage(**(fields | more))


_OPTIONS = slice(NewMessage.__struct_fields__.index("priority"), NewMessage.__struct_fields__.index("content_type"))
_NO_OPTIONS = msgspec.structs.astuple(NewMessage(b""))[_OPTIONS]


def _has_no_options(new: NewMessage) -> bool:
    """True if only payload, type, content type and id are set, as in most HTTP publishes."""
    options = msgspec.structs.astuple(new)[_OPTIONS]
    return options == _NO_OPTIONS and type(new.priority) is int and new.hold is None and new.review is None


def _item_without_options(settings: Settings, new: NewMessage) -> Item:
    """`_full_item` of a message without options, in a third of the time."""
    payload, content_type = _payload(new.payload, new.content_type, settings.max_payload)
    kind = "message" if new.type is None or new.type == "message" else type_name(new.type)
    return Item(
        Body(kind, payload, content_type),
        pack_payload(kind, payload, content_type),
        settings.max_attempts,
        settings.ordering,
        settings.ageing_us,
        None,
        None,
        settings.ttl_us,
        None,
        None,
        settings.idempotency_us,
        None if new.id is None else id_text(new.id),
    )


def payload_items(settings: Settings, values: Sequence[Any]) -> tuple[list[Item], Sequence[Any] | None]:
    """Items of payloads, the most common batch, in a third of the time of `_full_item`; and the payloads as they will
    be decoded, if that was done."""
    most, attempts = settings.max_payload, settings.max_attempts
    more: tuple[Any, ...] = ()
    if settings.ordering != "fifo" or settings.ttl_us:
        more = (settings.ordering, settings.ageing_us, None, None, settings.ttl_us)
    first = type(values[0])
    if first is bytes:
        if all(type(value) is bytes and len(value) <= most for value in values):
            made = [
                Item(Body("message", value, BYTES), pack_payload("message", value, BYTES), attempts, *more)
                for value in values
            ]
            return made, values
    elif first is not Encoded:
        encoded = encode_simple(values)
        if encoded is not None and max(map(len, encoded[0])) <= most:
            texts, decoded = encoded
            made = [Item(Body("message", raw), pack_payload("message", raw, JSON), attempts, *more) for raw in texts]
            return made, decoded
    items = []
    for value in values:
        payload, content_type = _payload(value, None, most)
        kind = value.type if type(value) is Encoded else "message"
        body, packed = Body(kind, payload, content_type), pack_payload(kind, payload, content_type)
        items.append(Item(body, packed, attempts, *more))
    return items, None


def _body(new: NewMessage, settings: Settings) -> Body:
    payload, content_type = _payload(new.payload, new.content_type, settings.max_payload)
    kind = "message" if new.type is None else type_name(new.type)
    if type(new.priority) is not int or new.priority:
        whole(new.priority, "priority", -_PRIORITY, _PRIORITY)
    return Body(
        kind,
        payload,
        content_type,
        new.priority,
        pairs(new.headers, "headers"),
        pairs(new.labels, "labels"),
        None if new.deadline is None else instant(new.deadline, "deadline"),
        None if new.key is None else text(new.key, "key", 512),
        None if new.idempotency_key is None else text(new.idempotency_key, "idempotency_key", 512),
        None if new.correlation_id is None else text(new.correlation_id, "correlation_id", 256),
        None if new.causation_id is None else text(new.causation_id, "causation_id", 256),
        None if new.parent_id is None else text(new.parent_id, "parent_id", 256),
        None if new.group is None else text(new.group, "group", 256),
        None if new.source is None else text(new.source, "source", 256),
        _hold(new),
        None if new.max_attempts is None else whole(new.max_attempts, "max_attempts", 1, 1000),
        new.deadline is not None and settings.on_deadline == "dead",
        None if new.review is None else _review(new),
    )


def _hold(new: NewMessage) -> str | None:
    if new.hold is None:
        return None if new.review is None else HOLD
    return text(new.hold, "hold", 128)


def _review(new: NewMessage) -> str:
    """The review as the body has it. What it means is checked by its publish step."""
    if new.key is not None:
        raise InvalidMessage(
            "a message with a review has no key: its payload must stay what the reviewer has seen", field="review"
        )
    if new.hold not in (None, HOLD):
        raise InvalidMessage("give hold or review, not both", field="hold", hint="a message with a review is held")
    try:
        raw = msgspec.json.encode(new.review)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidMessage(f"a review must be JSON: {error}", field="review") from None
    if len(raw) > _MOST_REVIEW:
        raise PayloadTooLarge(f"a review has at most {_MOST_REVIEW} bytes", field="review", hint="use a pattern")
    return raw.decode()


def _payload(value: Any, content_type: Any, most: int) -> tuple[bytes, str]:
    if type(value) is Encoded:
        value, content_type = value.payload, value.content_type
    if type(value) is bytes and len(value) <= most:
        if content_type is None:
            return value, BYTES
        if type(content_type) is str and content_type in _USUAL:
            return value, content_type
    if content_type is not None and (not isinstance(content_type, str) or not _CONTENT_TYPE.match(content_type)):
        raise InvalidMessage(f"{content_type!r:.100} is not a content type", field="content_type")
    if isinstance(value, _RAW):
        raw, content_type = bytes(value), content_type or BYTES
    elif content_type is not None and content_type not in (JSON, MSGPACK):
        if not isinstance(value, str) or not content_type.startswith("text/"):
            raise InvalidMessage(
                f"a payload of type {content_type} must be bytes", field="payload", hint="encode it yourself"
            )
        _encodable(value, "payload")
        raw = value.encode()
    else:
        try:
            raw, content_type = encode(value, content_type)
        except NOT_ENCODED as error:
            raise _not_encoded(error, "payload") from None
    if len(raw) > most:
        raise PayloadTooLarge(
            f"the payload has {len(raw)} bytes; the queue takes {most}",
            field="payload",
            hint="store it elsewhere and publish a reference, or raise max_payload",
        )
    return raw, content_type


def _not_encoded(error: Exception, field: str) -> InvalidMessage:
    hint = error.hint if isinstance(error, NotKept) else "pass values that JSON or MessagePack has, or bytes"
    if field == "payload" and isinstance(error, NotKept):
        hint += f", or content_type={JSON!r} to send it as JSON writes it"
    return InvalidMessage(f"the {field} cannot be encoded: {error}", field=field, hint=hint)


def _digest(queue: str, body: Body) -> bytes:
    """Digest of the request, equal when the request is repeated. It leaves out run time, attempts, the trace, what
    comes from settings, and which message the request was made for: several may ask for the same."""
    if body.correlation_id or body.causation_id or body.parent_id:
        body = msgspec.structs.replace(body, correlation_id=None, causation_id=None, parent_id=None)
    if body.own_max_attempts is not None or body.dead_at_deadline:
        body = msgspec.structs.replace(body, own_max_attempts=None, dead_at_deadline=False)
    if body.headers and not body.headers.keys().isdisjoint(tracing.HEADERS):
        headers = {name: value for name, value in body.headers.items() if name not in tracing.HEADERS}
        body = msgspec.structs.replace(body, headers=headers or None)
    return hashlib.blake2b(queue.encode() + b"\0" + pack_body(body), digest_size=16).digest()


def result(value: Any, most: int) -> bytes | None:
    if value is None:
        return None
    try:
        raw = bytes(value) if type(value) is msgspec.Raw else encode_result(value)
    except NOT_ENCODED as error:
        raise _not_encoded(error, "result") from None
    if len(raw) > most:
        raise PayloadTooLarge(f"the result has {len(raw)} bytes; the queue takes {most}", field="result")
    return raw


def error_text(value: Any) -> tuple[str | None, str | None]:
    """(error, traceback) of a text or an exception, both cut to a bounded length."""
    if value is None:
        return None, None
    if isinstance(value, BaseException):
        error = f"{type(value).__name__}: {value}"
        trace = "".join(tracebacks.format_exception(value))
        return clip(error, _ERROR_CHARACTERS), clip(trace, _TRACEBACK_CHARACTERS, end=True)
    if not isinstance(value, str):
        raise InvalidMessage("error must be a text or an exception", field="error")
    return clip(value, _ERROR_CHARACTERS), None


def traceback_text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidMessage("traceback must be a text", field="traceback")
    return None if value is None else clip(value, _TRACEBACK_CHARACTERS, end=True)


def clip(value: str, most: int, *, end: bool = False) -> str:
    """At most ``most`` characters, from the start or from the end; always valid Unicode."""
    short = value if len(value) <= most else value[-most:] if end else value[:most]
    return short.encode("utf-8", "replace").decode()
