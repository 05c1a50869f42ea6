"""Units of several calls (`port.Together`): when a unit is refused, and what is stored of a unit with a name.

Engines on tables run the calls of a unit together with all other calls of the commit. If one of them is refused, the
whole commit is rolled back, and each unit runs again in a commit of its own. So a unit needs no savepoint, and costs
nothing extra unless it is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from tampu.engines.port import Call, Cancel, DeleteDocument, Free, Publish, PutDocument, Settle, Together
from tampu.model.decoders import from_msgpack
from tampu.model.errors import IdempotencyConflict, TampuError
from tampu.model.message import Message, State
from tampu.model.outcome import Outcome


class Refused(Exception):
    """A unit was refused: its commit must be rolled back."""

    def __init__(self, error: TampuError) -> None:
        super().__init__(str(error))
        self.error = error


class Names(Protocol):
    """How an engine stores the names of units."""

    def find(self, commit: Any, unit: Together) -> tuple[bytes, bytes] | None:
        """(digest, packed replies) of the stored unit with this name. No other commit may use the name meanwhile."""
        ...

    def keep(self, commit: Any, unit: Together, digest: bytes, packed: bytes) -> None:
        """Store them for ``unit.name_us``."""
        ...


def carry_out_units(
    carry_out: Callable[[Sequence[Call]], list[Any]], names: Names, commit: Any, calls: Sequence[Call]
) -> list[Any]:
    """Run calls of which some are units, as one flat list. Raises `Refused`."""
    known: dict[int, list[Any]] = {}
    seen: set[tuple[str, str]] = set()
    for i, call in enumerate(calls):
        if isinstance(call, Together) and call.name is not None:
            if (call.tenant, call.name) in seen:  # the same unit twice: run one after the other
                raise Refused(IdempotencyConflict("a unit with this name is running", field="name", hint="try again"))
            seen.add((call.tenant, call.name))
            found = names.find(commit, call)
            if found is not None:
                known[i] = repeated(call, *found)
    members: list[Call] = []
    spans: list[tuple[int, int]] = []
    for i, call in enumerate(calls):
        start = len(members)
        if i not in known:
            members.extend(call.calls if isinstance(call, Together) else [call])
        spans.append((start, len(members)))
    flat = carry_out(members) if members else []
    replies: list[Any] = []
    for i, (call, (start, end)) in enumerate(zip(calls, spans, strict=True)):
        if i in known:
            replies.append(known[i])
        elif not isinstance(call, Together):
            replies.append(flat[start])
        else:
            replies.append(flat[start:end])
            _check(flat[start:end])
            if call.name is not None:
                names.keep(commit, call, digest(call), pack(call, flat[start:end]))
    return replies


def _check(replies: Sequence[Any]) -> None:
    for reply in replies:
        error = refusal(reply)
        if error is not None:
            raise Refused(error)


def refusal(reply: Any) -> TampuError | None:
    """The error in the reply of a call, if it refuses the unit."""
    if isinstance(reply, TampuError):
        return reply
    if isinstance(reply, list):
        return next((item.error for item in reply if isinstance(item, Outcome) and item.error is not None), None)
    return None


def run_apart(
    run: Callable[[Sequence[Call]], list[Any]],
    alone: Callable[[Call], Any],
    calls: Sequence[Call],
    refused: Refused,
) -> list[Any]:
    """After `Refused`: run each unit alone, and all other calls together."""
    if len(calls) == 1:
        return [refused.error]
    others = [i for i, call in enumerate(calls) if not isinstance(call, Together)]
    replies: list[Any] = [None] * len(calls)
    if others:
        for i, reply in zip(others, run([calls[i] for i in others]), strict=True):
            replies[i] = reply
    for i, call in enumerate(calls):
        if isinstance(call, Together):
            replies[i] = alone(call)
    return replies


# -- names


def digest(unit: Together) -> bytes:
    """Identifies the content of a unit. Leaves out what may differ between two tries, such as the trace."""
    hashed = hashlib.blake2b(digest_size=16)
    for call in unit.calls:
        hashed.update(msgspec.msgpack.encode(_content(call)))
    return hashed.digest()


def _content(call: Call) -> Any:
    if isinstance(call, Publish):
        return ["publish", call.queue, [item.body.payload for item in call.items]]
    if isinstance(call, Settle):
        return ["settle", [(item.verb, item.receipt, item.result) for item in call.items]]
    if isinstance(call, Cancel | Free):
        return [type(call).__name__, list(call.ids)]
    assert isinstance(call, PutDocument | DeleteDocument)
    return [type(call).__name__, call.kind, call.name, call.value if isinstance(call, PutDocument) else None]


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """The reply of a publish for one message, without the body: a repeated call brings it again."""

    id: str
    state: State
    attempts: int
    max_attempts: int
    created_us: int
    run_us: int | None
    expires_us: int | None
    reason: str | None

    @classmethod
    def of(cls, message: Message) -> _Stored:
        return cls(*(getattr(message, name) for name in cls.__struct_fields__))


class _Ended(msgspec.Struct, frozen=True, array_like=True):
    id: str | None
    state: State | None


_read_raws = from_msgpack(list[msgspec.Raw]).decode
_read_stored = from_msgpack(list[_Stored]).decode
_read_ended = from_msgpack(list[_Ended]).decode


def pack(unit: Together, replies: Sequence[Any]) -> bytes:
    """The replies of a unit, as `unpack` reads them."""
    return msgspec.msgpack.encode([_packed(call, reply) for call, reply in zip(unit.calls, replies, strict=True)])


def _packed(call: Call, reply: Any) -> Any:
    if isinstance(call, Publish):
        return [_Stored.of(message) for message in reply]
    if isinstance(call, Settle | Cancel | Free):
        return [_Ended(outcome.id, outcome.state) for outcome in reply]
    return reply


def unpack(unit: Together, packed: bytes) -> list[Any]:
    raws = _read_raws(packed)
    return [_unpacked(call, raw) for call, raw in zip(unit.calls, raws, strict=True)]


def _unpacked(call: Call, raw: msgspec.Raw) -> Any:
    if isinstance(call, Publish):
        return [
            Message(
                m.id, call.tenant, call.queue, m.state, item.body, m.attempts, m.max_attempts, m.created_us,
                m.run_us, m.expires_us, reason=m.reason, duplicate=True,
            )
            for m, item in zip(_read_stored(raw), call.items, strict=True)
        ]  # fmt: skip
    if isinstance(call, Settle | Cancel | Free):
        return [Outcome(outcome.id, outcome.state) for outcome in _read_ended(raw)]
    return msgspec.msgpack.decode(raw)


def repeated(unit: Together, stored: bytes, packed: bytes) -> list[Any]:
    """The replies of a unit that took effect before. Raises `Refused` if another unit had its name."""
    if stored != digest(unit):
        raise Refused(
            IdempotencyConflict(
                "another unit was run under this name", field="name", hint="choose a new name for every unit"
            )
        )
    return unpack(unit, packed)
