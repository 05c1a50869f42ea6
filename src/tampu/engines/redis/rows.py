"""How a message is encoded. docs/reference/redis-layout.md describes it for other languages."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tampu.engines import encoding
from tampu.engines.groups import GroupRate
from tampu.engines.redis.queue_registry import QueueEntry
from tampu.engines.rules import KEPT_BY_KEY
from tampu.model.decoders import from_msgpack
from tampu.model.errors import InvalidMessage
from tampu.model.message import Body, Failure, Message
from tampu.model.times import moment

STATES, CODE = encoding.STATES, encoding.CODE
READY, DELAYED, LEASED, HELD = encoding.LIVE_KINDS
DONE, DEAD = encoding.DONE, encoding.DEAD
_BIAS = 1 << 63
_DEFAULT = dict(zip(Body.__struct_fields__[2:], Body.__struct_defaults__, strict=True))
_NOTHING = (False,) * len(KEPT_BY_KEY)
"""Fills up messages of earlier versions, which have fewer fields."""
_MOST_BASE = (1 << 64) - 1 - (1 << 53)
_RECEIPT = re.compile(r"/([0-9a-f]{1,16})\.([0-7]?[0-9a-f]{1,15})\Z")

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder().decode


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of a message that does not change, and its rank."""

    rank: str
    flags: int
    created: int
    max_attempts: int
    extra: dict[str, Any] | None
    """e expires, k key, l group with slots or order, o id the user gave, p fields that replacing the payload keeps,
    c hash of tenant and correlation id"""
    body: Body

    @property
    def shown(self) -> Body:
        """The body. Fields that replacing by key keeps are those of the first body."""
        if self.extra is None or "p" not in self.extra:
            return self.body
        kept = zip(KEPT_BY_KEY, (*self.extra["p"], *_NOTHING)[: len(KEPT_BY_KEY)], strict=True)
        return msgspec.structs.replace(self.body, **{name: value or _DEFAULT[name] for name, value in kept})


class Status(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of a message that changes: `x` of the layout. What the last values are depends on the state."""

    state: int
    attempts: int
    marker: Any = ""
    """The settle marker, or the lease."""
    at: Any = False
    """When it is due, ended, or its lease expires; the position of a ready message."""
    text: Any = ""
    """The reason, or the worker."""
    last: Any = 0
    """1 if a cancel was requested or it waits for its group; the journal's offset at which it ended."""

    since: Any = False
    """When the lease began; False if an earlier version leased it."""
    extended: Any = False
    """When the lease was last extended."""

    @property
    def is_leased(self) -> bool:
        return self.state == LEASED

    @property
    def run_at(self) -> int | None:
        return (self.at or None) if self.state in (DELAYED, HELD) else None

    @property
    def ended_at(self) -> int | None:
        return self.at if self.state >= DONE else None

    @property
    def reason(self) -> str | None:
        return self.text if self.state in (HELD, DEAD) else None

    @property
    def cancel_requested(self) -> bool:
        return self.state == LEASED and self.last == 1

    @property
    def waits_for_group(self) -> bool:
        return self.state == HELD and self.last == 1


read_row = from_msgpack(Row).decode
_read_status = from_msgpack(Status).decode
_PUBLISHED = Status(READY, 0)


def read_status(raw: bytes | None) -> Status:
    """No status is stored for a message that is ready as it was published."""
    return _read_status(raw) if raw else _PUBLISHED


def kept_fields(body: Body) -> tuple[Any, ...] | None:
    """Fields stored beside the body, because Lua cannot read it: those that decide the order and those that replacing
    by key keeps. None if none is set."""
    values = tuple(getattr(body, name) or False for name in KEPT_BY_KEY)
    return (values[0] or 0, *values[1:]) if any(values) else None


def message(
    entry: QueueEntry,
    seq: str,
    raw: bytes,
    raw_status: bytes | None,
    error: bytes | None,
    failures: tuple[Failure, ...] = (),
    result: bytes | None = None,
) -> Message:
    """A message from its row and its status (`x`)."""
    row = read_row(raw)
    extra = row.extra or {}
    status = read_status(raw_status)
    return Message(
        extra.get("o") or entry.ids.of(seq),
        entry.tenant,
        entry.queue,
        STATES[status.state],
        row.shown,
        status.attempts,
        row.max_attempts,
        row.created,
        status.run_at,
        extra.get("e"),
        status.ended_at,
        status.reason,
        error.decode() if error is not None else None,
        failures,
        result,
        status.cancel_requested,
        worker=(status.text or None) if status.is_leased else None,
        lease_until_us=status.at if status.is_leased else None,
        started_us=(status.since or None) if status.is_leased else None,
        updated_us=(status.extended or status.since or None) if status.is_leased else None,
    )


def failures(raw: bytes | None) -> tuple[Failure, ...]:
    return tuple(
        Failure(attempt, moment(at), outcome, worker or None, error or None, traceback or None)
        for attempt, at, outcome, worker, error, traceback in (decode(raw) if raw else ())
    )


def result(raw: bytes | None, now: int) -> bytes | None:
    """The result unless it has expired. Stored as 16 digits of its expiry, then the result."""
    return raw[16:] if raw and int(raw[:16]) > now else None


def group_rate(value: GroupRate | None) -> tuple[int, int]:
    """A group rate as the scripts take it: microseconds per token, and burst; 0 for none."""
    return (0, 0) if value is None else (value.us, value.burst)


def rank_text(rank: int) -> str:
    """A rank as in the ready index: 16 hexadecimal digits that sort like the numbers."""
    return f"{rank + _BIAS:016x}"


def rank_number(text: str) -> int:
    return int(text, 16) - _BIAS


def ageing_base(priority: int, ageing_us: int) -> tuple[int, int]:
    """The rank that the server adds its time to, as two halves of 32 bits, because Lua's integers have 53."""
    base = max(0, min(_MOST_BASE, _BIAS - priority * ageing_us))
    return base >> 32, base & 0xFFFFFFFF


def parse_receipt(text: str) -> tuple[str, str]:
    """(number, lease) of a receipt, which is ``queue/number.lease`` in hexadecimal."""
    match = _RECEIPT.search(text)
    if not match:
        raise InvalidMessage("this is not a receipt", field="receipt", hint="pass the receipt that claim gave")
    return match[1].rjust(16, "0"), match[2]


def again(found: Message) -> Message:
    """The reply to a publish whose message was stored before."""
    return msgspec.structs.replace(found, duplicate=True)
