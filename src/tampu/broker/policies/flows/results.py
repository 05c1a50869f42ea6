"""The payload of a member that runs: its own, with the results of its parents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.policies.flows import stored
from tampu.broker.policies.schemas.step import SchemaStep
from tampu.broker.publish_steps import Batch, Draft
from tampu.broker.settings import Settings
from tampu.engines.port import Engine
from tampu.model.errors import InvalidMessage, PayloadTooLarge, TampuError
from tampu.model.message import Body, Message
from tampu.model.reasons import DECODE_FAILED, OVERSIZE, PARENT_RESULT_GONE, SCHEMA_INVALID
from tampu.model.values import NOT_ENCODED, encode

SettingsOf = Callable[[str], Settings]


class CannotRun(Exception):
    """The member dies, for this reason."""

    def __init__(self, reason: str, error: str) -> None:
        super().__init__(error)
        self.reason = reason


def body_of(
    engine: Engine,
    settings_of: SettingsOf,
    message: Message,
    parents: Iterable[tuple[str, str]],
    into: str,
    *,
    many: bool,
) -> Body:
    """The body of a member with the results of its parents, given as (id, letter). Raises `CannotRun`."""
    settings = settings_of(message.queue)
    room = settings.max_payload
    found: list[Any] = []
    for id, letter in parents:
        raw = _result(engine, settings_of, message.tenant, id) if letter == stored.DONE else None
        room -= 1 if raw is None else len(raw)
        if room < 0:
            raise _too_large(settings.max_payload)
        found.append(None if raw is None else _value(id, raw))
    value = found if many else found[0]
    if into:
        value = {**_fields(message), into: value}
    plain = msgspec.structs.replace(message.body, hold=None)
    try:
        payload, content_type = encode(value)
        new = validate.from_body(plain, payload=payload, content_type=content_type)
        return _checked(settings_of, message, validate.item(message.queue, settings, new).body)
    except PayloadTooLarge:
        raise _too_large(settings.max_payload) from None
    except NOT_ENCODED as error:
        raise CannotRun(DECODE_FAILED, f"the results of its parents cannot be sent: {error}") from None


def _too_large(most: int) -> CannotRun:
    return CannotRun(
        OVERSIZE, f"the results of its parents do not fit into the max_payload of its queue, {most} bytes: return "
        "less, such as the place where the result is stored",
    )  # fmt: skip


def _result(engine: Engine, settings_of: SettingsOf, tenant: str, id: str) -> bytes | None:
    message = engine.get(tenant, id)
    gone = message is None
    if message is not None and message.result_raw is None and message.ended_us is not None:
        gone = engine.now() > message.ended_us + settings_of(message.queue).result_ttl_us
    if gone or message is None:
        raise CannotRun(
            PARENT_RESULT_GONE,
            f"the result of {id} was removed before this message could run: raise result_ttl and retention of its "
            "queue",
        )
    return message.result_raw


def _value(id: str, raw: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(raw)
    except NOT_ENCODED as error:
        raise CannotRun(DECODE_FAILED, f"the result of {id} cannot be decoded: {error}") from None


def _fields(message: Message) -> dict[str, Any]:
    try:
        payload = message.payload
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise CannotRun(DECODE_FAILED, f"the payload cannot be decoded: {error}") from None
    if not isinstance(payload, dict):
        raise CannotRun(DECODE_FAILED, "the payload is not an object, so it has no field for results")
    return payload


def _checked(settings_of: SettingsOf, message: Message, body: Body) -> Body:
    """The body, if the schemas of its queue accept it."""
    settings = settings_of(message.queue)
    if not settings.schemas:
        return body
    item = validate.item(message.queue, settings, validate.from_body(body))
    draft = Draft(message.queue, validate.from_body(body), item, None)
    try:
        SchemaStep().apply(Batch(message.tenant, [draft], settings_of), [draft])
    except InvalidMessage as error:
        raise CannotRun(SCHEMA_INVALID, str(error)) from None
    except TampuError as error:
        raise CannotRun(DECODE_FAILED, str(error)) from None
    if draft.ends is not None:
        raise CannotRun(SCHEMA_INVALID, str(draft.ends.error))
    return msgspec.structs.replace(body, headers=draft.field("headers"))
