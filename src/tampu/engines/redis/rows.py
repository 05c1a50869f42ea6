"""How a message is written down, and read back. docs/reference/redis-layout.md tells it for other languages."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tampu.engines import encoding
from tampu.engines.groups import GroupRate
from tampu.engines.redis.queue_registry import QueueEntry
from tampu.engines.rules import KEPT_BY_KEY
from tampu.model.decoders import from_msgpack
from tampu.model.errors import IdempotencyConflict, InvalidMessage, LeaseLost
from tampu.model.message import Body, Failure, Message
from tampu.model.times import moment

STATES, CODE = encoding.STATES, encoding.CODE
READY, DELAYED, LEASED, HELD = encoding.LIVE_KINDS
DONE, DEAD = encoding.DONE, encoding.DEAD
FIFO = "8000000000000000"
_BIAS = 1 << 63
_DEFAULT = dict(zip(Body.__struct_fields__[2:], Body.__struct_defaults__, strict=True))
_NOTHING = (False,) * len(KEPT_BY_KEY)
"""Messages of earlier versions have fewer."""
_MOST_BASE = (1 << 64) - 1 - (1 << 53)
_RECEIPT = re.compile(r"/([0-9a-f]{1,16})\.([0-7]?[0-9a-f]{1,15})\Z")

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder().decode


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What does not change of a message; and its rank."""

    rank: str
    flags: int
    created: int
    max_attempts: int
    extra: dict[str, Any] | None
    """e expires, k key, l group whose order is kept, o own id, p what a replaced payload leaves as it was"""
    body: Body

    @property
    def shown(self) -> Body:
        """The body; what a key does not replace is that of the first one."""
        if self.extra is None or "p" not in self.extra:
            return self.body
        kept = zip(KEPT_BY_KEY, (*self.extra["p"], *_NOTHING)[: len(KEPT_BY_KEY)], strict=True)
        return msgspec.structs.replace(self.body, **{name: value or _DEFAULT[name] for name, value in kept})


read_row = from_msgpack(Row).decode


def decisive(body: Body) -> tuple[Any, ...] | None:
    """What stands beside the body, for it can not be read in Lua: what decides about the order, and what a key does not
    replace. None when none of it is given."""
    values = tuple(getattr(body, name) or False for name in KEPT_BY_KEY)
    return (values[0] or 0, *values[1:]) if any(values) else None


def message(
    room: QueueEntry,
    seq: str,
    raw: bytes,
    place: bytes | None,
    error: bytes | None,
    failures: tuple[Failure, ...] = (),
    result: bytes | None = None,
) -> Message:
    """A message as the index it is in says."""
    row = read_row(raw)
    extra = row.extra or {}
    x: list[Any] = decode(place) if place else [READY, 0, "", False]
    code = x[0]
    return Message(
        extra.get("o") or room.ids.of(seq),
        room.tenant,
        room.queue,
        STATES[code],
        row.shown,
        x[1],
        row.max_attempts,
        row.created,
        (x[3] or None) if code in (DELAYED, HELD) else None,
        extra.get("e"),
        x[3] if code >= DONE else None,
        x[4] if code in (HELD, DEAD) else None,
        error.decode() if error is not None else None,
        failures,
        result,
        code == LEASED and x[5] == 1,
    )


def failures(raw: bytes | None) -> tuple[Failure, ...]:
    return tuple(
        Failure(attempt, moment(at), outcome, worker or None, error or None, traceback or None)
        for attempt, at, outcome, worker, error, traceback in (decode(raw) if raw else ())
    )


def result(raw: bytes | None, now: int) -> bytes | None:
    """16 digits of the time it is kept until, then the result."""
    return raw[16:] if raw and int(raw[:16]) > now else None


def group_rate(value: GroupRate | None) -> tuple[int, int]:
    """A pace as the scripts take it: microseconds and burst; 0 is none."""
    return (0, 0) if value is None else (value.us, value.burst)


def rank_text(rank: int) -> str:
    """A rank as the ready index has it: 16 hexadecimal digits, in the order of the numbers."""
    return f"{rank + _BIAS:016x}"


def rank_number(text: str) -> int:
    return int(text, 16) - _BIAS


def ageing_base(priority: int, ageing_us: int) -> tuple[int, int]:
    """What the server adds its time to: a rank as two halves of 32 bits, for Lua's numbers have 53."""
    base = max(0, min(_MOST_BASE, _BIAS - priority * ageing_us))
    return base >> 32, base & 0xFFFFFFFF


def parse_receipt(text: str) -> tuple[str, str]:
    """(number, lease) of a receipt, which is ``queue/number.lease`` in hexadecimal."""
    found = _RECEIPT.search(text)
    if not found:
        raise InvalidMessage("this is not a receipt", field="receipt", hint="pass the receipt that claim gave")
    return found[1].rjust(16, "0"), found[2]


def lease_lost() -> LeaseLost:
    return LeaseLost(
        "this receipt is not the current lease of its message",
        field="receipt",
        hint="the lease ran out or was settled; stop working on it, somebody else may have it",
    )


def conflict() -> IdempotencyConflict:
    return IdempotencyConflict(
        "this idempotency key was used for a message with another body",
        field="idempotency_key",
        hint="use a new key for new work",
    )


def again(found: Message) -> Message:
    """The answer to a publish that found its message there."""
    return msgspec.structs.replace(found, duplicate=True)
