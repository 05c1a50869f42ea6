"""Units of several calls (`port.Together`): when a unit is refused, and what is stored of a unit with a name.

Engines on tables run the calls of a unit together with all other calls of the commit. If units are refused, the whole
commit is rolled back, before the next kind of call runs. Then all others run again together, and after them each
refused unit alone. So a unit needs no savepoint, and costs nothing extra unless one is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from tampu.engines.port import (
    Call,
    Cancel,
    DeleteDocument,
    Extend,
    Extended,
    Free,
    Publish,
    PutDocument,
    Settle,
    Together,
)
from tampu.model.decoders import from_msgpack
from tampu.model.errors import IdempotencyConflict, TampuError
from tampu.model.message import Message, State, unpack_body
from tampu.model.outcome import Outcome


class Refused(Exception):
    """Some units were refused: their commit must be rolled back."""

    def __init__(self, errors: dict[int, TampuError]) -> None:
        super().__init__("; ".join(map(str, errors.values())))
        self.errors = errors
        """Why, by the position of the unit among the calls."""


class Names(Protocol):
    """How an engine stores the names of units."""

    def find(self, commit: Any, unit: Together) -> tuple[bytes, bytes] | None:
        """(digest, packed replies) of the stored unit with this name. No other commit may use the name meanwhile."""
        ...

    def keep(self, commit: Any, unit: Together, digest: bytes, packed: bytes) -> None:
        """Store them for ``unit.name_us``."""
        ...


Check = Callable[[Sequence[int], Sequence[Any]], None]


def carry_out_units(
    carry_out: Callable[[Sequence[Call], Check], list[Any]], names: Names, commit: Any, calls: Sequence[Call]
) -> list[Any]:
    """Run calls of which some are units, as one flat list. Raises `Refused` as soon as a verb refused some."""
    known = _find_names(names, commit, calls)
    members: list[Call] = []
    units: list[int | None] = []
    """The unit of each member, by its position among the calls."""
    spans: list[tuple[int, int]] = []
    for i, call in enumerate(calls):
        start = len(members)
        if i not in known:
            members.extend(call.calls if isinstance(call, Together) else [call])
            units += [i if isinstance(call, Together) else None] * (len(members) - start)
        spans.append((start, len(members)))

    def check(indexes: Sequence[int], replies: Sequence[Any]) -> None:
        refused: dict[int, TampuError] = {}
        for index in indexes:
            unit = units[index]
            reply = replies[index]
            if isinstance(members[index], Publish) and not isinstance(reply, TampuError):
                continue  # all or nothing: there is no error among its messages
            error = None if unit is None else refusal(reply)
            if unit is not None and error is not None:
                refused.setdefault(unit, error)
        if refused:
            raise Refused(refused)

    flat = carry_out(members, check) if members else []
    replies: list[Any] = []
    for i, (call, (start, end)) in enumerate(zip(calls, spans, strict=True)):
        if i in known:
            replies.append(known[i])
        elif not isinstance(call, Together):
            replies.append(flat[start])
        else:
            replies.append(flat[start:end])
            if call.name is not None:
                names.keep(commit, call, digest(call), pack(call, flat[start:end]))
    return replies


def _find_names(names: Names, commit: Any, calls: Sequence[Call]) -> dict[int, list[Any]]:
    """The replies of units that took effect before, by position. Raises `Refused` if names are not free."""
    known: dict[int, list[Any]] = {}
    refused: dict[int, TampuError] = {}
    seen: set[tuple[str, str]] = set()
    for i, call in enumerate(calls):
        if not isinstance(call, Together) or call.name is None:
            continue
        if (call.tenant, call.name) in seen:  # the same unit twice: run one after the other
            refused[i] = IdempotencyConflict("a unit with this name is running", field="name", hint="try again")
            continue
        seen.add((call.tenant, call.name))
        found = names.find(commit, call)
        if found is None:
            continue
        stored, packed = found
        if stored == digest(call):
            known[i] = unpack(call, packed)
        else:
            refused[i] = IdempotencyConflict(
                "another unit was run under this name", field="name", hint="choose a new name for every unit"
            )
    if refused:
        raise Refused(refused)
    return known


def refusal(reply: Any) -> TampuError | None:
    """The error in the reply of a call, if it refuses the unit."""
    if isinstance(reply, TampuError):
        return reply
    if isinstance(reply, list):
        errors = (item.error if isinstance(item, Outcome) else item for item in reply)
        return next((error for error in errors if isinstance(error, TampuError)), None)
    return None


def run_apart(
    run: Callable[[Sequence[Call]], list[Any]],
    alone: Callable[[Call], Any],
    calls: Sequence[Call],
    refused: Refused,
) -> list[Any]:
    """After `Refused`: run all other calls together, then each refused unit alone: others may have been the reason."""
    if len(calls) == 1:
        return list(refused.errors.values())
    others = [i for i in range(len(calls)) if i not in refused.errors]
    replies: list[Any] = [None] * len(calls)
    if others:
        for i, reply in zip(others, run([calls[i] for i in others]), strict=True):
            replies[i] = reply
    for i in refused.errors:
        replies[i] = alone(calls[i])
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
    if isinstance(call, Cancel):
        return ["Cancel", list(call.ids), *([] if call.dead is None else [call.dead])]
    if isinstance(call, Free):
        payloads = [None if body is None else unpack_body(body).payload for body in call.bodies]
        return ["Free", list(call.ids), *([payloads] if payloads else [])]
    if isinstance(call, Extend):
        return ["extend", list(call.items)]
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
_read_extended = from_msgpack(list[Extended]).decode


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
    if isinstance(call, Extend):
        return _read_extended(raw)
    return msgspec.msgpack.decode(raw)
