"""Units: calls of several kinds, and of several queues, all or none.

One server carries out a unit in one script. On a cluster only what is in one slot can be one script. There the first
script decides: it checks, does its part, and leaves an *intent*: the calls for the other slots. These follow at once,
each in a script that remembers the unit, so that none is done twice. Then the intent is removed, and after that what
the others remember. Whoever dies in between leaves the intent, and maintenance completes the unit from it.

What follows can not be refused any more. So only the first slot may hold calls that can be: settlements, cancels,
frees, documents with a version, idempotency keys. A ``max_depth`` elsewhere is looked at before, and may be passed by
units that are under way at the same time.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from tampu.engines import units
from tampu.engines.port import Cancel, DeleteDocument, Free, Publish, PutDocument, Settle, Together
from tampu.engines.redis import admin, documents, publish, reservations, rows, settle
from tampu.engines.redis.queue_registry import QueueEntry
from tampu.engines.redis.run_context import RunContext
from tampu.engines.redis.script_calls import Asking, ScriptCall, ok
from tampu.model.decoders import from_msgpack
from tampu.model.errors import IdempotencyConflict, InvalidState, NotFound, TampuError, Unavailable
from tampu.model.message import Body, Message, unpack_body
from tampu.model.outcome import Outcome

log = logging.getLogger("tampu")
_LOOK_US = 2_000_000
"""After so long somebody else looks whether all of a unit was carried out."""
_REMEMBERED_US = 7 * 86_400_000_000
"""How long a slot remembers its part while the intent may be there: longer than any server is away."""
_ENDING = frozenset({"ack", "reject"})
"""Ways to settle after which a message does not count for ``max_depth``."""


class Part:
    """The calls of a unit for one tag. Places are those of calls in the unit, and of items in their call."""

    def __init__(self, tag: str, room: QueueEntry | None) -> None:
        self.tag = tag
        self.room = room
        self.publishes: list[tuple[int, Publish]] = []
        self.settles: list[int] = []
        self.group = settle.Group()
        self.named: dict[str, list[tuple[int, int, str, str]]] = {"cancel": [], "release_held": []}
        """(place, item, what the message is called here, its id)"""
        self.documents: list[tuple[int, PutDocument | DeleteDocument]] = []
        self.deep = False
        """Whatever its max_depth is: the unit is decided."""

    @property
    def refusable(self) -> bool:
        """May it be refused, whatever is looked at before?"""
        return bool(
            self.group.items
            or any(self.named.values())
            or any(item.body.idempotency_key is not None for _, call in self.publishes for item in call.items)
            or any(isinstance(call, PutDocument) and call.version is not None for _, call in self.documents)
        )

    @property
    def limited(self) -> bool:
        return any(call.max_depth for _, call in self.publishes)

    @property
    def publish(self) -> Publish | None:
        """All that is published here, as one call: so its depth is that of all."""
        if not self.publishes:
            return None
        call = self.publishes[0][1]
        ending = sum(item.verb in _ENDING for item in self.group.items)
        return msgspec.structs.replace(
            call,
            items=[item for _, one in self.publishes for item in one.items],
            max_depth=0 if self.deep or not call.max_depth else call.max_depth + ending,
        )


# -- sorting the calls


def _sort(context: RunContext, unit: Together) -> Asking[list[Part]]:
    """The parts of a unit. Raises what refuses it without asking further."""
    parts: dict[str, Part] = {}

    def part(room: QueueEntry | None) -> Part:
        tag = context.registry.tags.registry if room is None else room.tag
        return parts.setdefault(tag, Part(tag, room))

    for place, call in enumerate(unit.calls):
        if isinstance(call, Publish):
            part((yield from context.registry.enter(call.tenant, call.queue))).publishes.append((place, call))
        elif isinstance(call, Settle):
            for i, item in enumerate(call.items):
                room = yield from context.registry.known(call.tenant, item.queue)
                if room is None:
                    raise rows.lease_lost()
                found = part(room)
                found.group.add(i, item, *rows.parse_receipt(item.receipt))
                found.settles.append(place)
        elif isinstance(call, Cancel | Free):
            verb = "cancel" if isinstance(call, Cancel) else "release_held"
            for i, (room, name) in enumerate((yield from _find(context, call))):
                part(room).named[verb].append((place, i, name, call.ids[i]))
        else:
            part(None).documents.append((place, call))
    return list(parts.values())


def _find(context: RunContext, call: Cancel | Free) -> Asking[list[admin.Placed]]:
    """Where messages are: by the ids that we made, or by those that the user gave."""
    registry = context.registry
    placed = yield from admin.by_id(registry, call.tenant, call.ids)
    asked = [(i, place) for i, place in enumerate(placed) if place is not None]
    if asked:
        replies = yield [context.write.script("get_message", room.tag, number) for _, (room, number) in asked]
        for (i, _), reply in zip(asked, replies, strict=True):
            if ok(reply) is None:
                placed[i] = None
    missing = [i for i, place in enumerate(placed) if place is None]
    if missing:
        found = yield from admin.by_name(registry, call.tenant, [call.ids[i] for i in missing])
        for i, place in zip(missing, found, strict=True):
            if place is None:
                raise NotFound(f"no message {call.ids[i]}", field="id")
            placed[i] = place
    return [place for place in placed if place is not None]


# -- one script


class _Script:
    """What one script does: its steps, and what its answers mean."""

    def __init__(self, context: RunContext, parts: Sequence[Part]) -> None:
        self._context = context
        self._parts = parts
        self._packed: dict[str, list[dict[str, Any]]] = {}
        self._names: dict[str, reservations.Reservations] = {}
        self._elsewhere: dict[str, dict[int, Message]] = {}
        for part in parts:
            call = part.publish
            if call is not None:
                assert part.room is not None
                self._packed[part.tag] = [publish.pack_item(item) for item in call.items]
                if reservations.wanted(call.items):
                    self._names[part.tag] = reservations.Reservations(context, part.room, call.items)

    def reserve(self) -> Asking[None]:
        for tag, names in self._names.items():
            self._elsewhere[tag] = yield from names.reserve(self._packed[tag])

    def steps(self) -> Iterator[tuple[str, Part, Sequence[Any]]]:
        """(script, part, arguments), checks first; answers come in the order of what is done."""
        doing: list[tuple[str, Part, Sequence[Any]]] = []
        for part in self._parts:
            settled: Sequence[Any] = ()
            if part.group.items:
                assert part.room is not None
                settled = _arguments(settle.ask(self._context, part.room, part.group))
            names = {verb: rows.encode([name for _, _, name, _ in found]) for verb, found in part.named.items()}
            calls = [call for _, call in part.documents]
            looked = rows.encode(documents.items_of(calls))
            if part.refusable:
                items = settled[1] if settled else rows.encode([])
                yield "unit_check", part, (items, names["cancel"], names["release_held"], looked)
            if calls:
                doing.append(("change_documents", part, _arguments(documents.ask(self._context, calls))))
            if settled:
                doing.append(("settle", part, settled))
            call = part.publish
            if call is not None:
                assert part.room is not None
                bodies = [item.packed for item in call.items]
                asked = publish.ask(
                    self._context,
                    part.room,
                    call,
                    self._packed[part.tag],
                    bodies,
                    publish.limits_of(call.slots, call.group_rate),
                )
                doing.append(("publish", part, _arguments(asked)))
            doing.extend((verb, part, (names[verb],)) for verb, found in part.named.items() if found)
        yield from doing

    def refused(self, script: str, part: Part, answer: list[Any]) -> None:
        """Raise why; nothing, if it is to be tried again."""
        if script == "publish":
            call = part.publish
            assert call is not None
            if answer[4] == b"void":
                self._names[part.tag].lose(answer[5:])
                return
            publish.refuse(part.publishes[0][1], answer[4:])
        verb, which = answer[0].decode(), answer[1] - 1
        if verb == "settle":
            raise rows.lease_lost()
        if verb == "documents":
            raise documents.changed(part.documents[which][1])
        id = part.named[verb][which][3]
        told = None if answer[2] == -1 else [0, *answer[2:]]
        error = admin.outcome(verb, id, told).error
        assert error is not None
        raise error

    def read(self, script: str, part: Part, answer: list[Any], replies: dict[int, Any]) -> bool:
        """Put the answer where it belongs; whether a queue is new by it."""
        if script == "change_documents":
            calls = [call for _, call in part.documents]
            for (place, _), reply in zip(part.documents, documents.told(calls, answer), strict=True):
                replies[place] = reply
            return False
        assert part.room is not None
        self._context.heard(part.room, answer)
        if script == "publish":
            call = part.publish
            assert call is not None
            stored = iter(
                publish.stored(part.room, call.items, answer[4:], self._elsewhere.get(part.tag, {}), answer[3])
            )
            for place, one in part.publishes:
                replies[place] = [next(stored) for _ in one.items]
            return bool(answer[2])
        if script == "settle":
            outcomes = settle.settled(part.room, part.group, answer)
            for place, item, outcome in zip(part.settles, part.group.places, outcomes, strict=True):
                replies.setdefault(place, {})[item] = outcome
            return False
        for (place, item, _, id), one in zip(part.named[script], answer[2:], strict=True):
            replies.setdefault(place, {})[item] = admin.outcome(script, id, one)
        return False


def _arguments(ask: ScriptCall) -> Sequence[Any]:
    """Those of a script, after its keys and the time."""
    return ask.command[6:]


def _carry_out(
    context: RunContext, tag: str, parts: Sequence[Part], name: str, keep_us: int, digest: bytes, intent: bytes = b""
) -> Asking[dict[int, Any]]:
    """One script; the replies by place. Raises what refused it."""
    script = _Script(context, parts)
    while True:
        yield from script.reserve()
        steps = list(script.steps())
        head = rows.encode([(kind, part.tag, len(arguments)) for kind, part, arguments in steps])
        flat = [argument for _, _, arguments in steps for argument in arguments]
        (reply,) = yield [
            context.write.script("unit", tag, name, keep_us, digest.hex(), intent, _LOOK_US, head, *flat),
        ]
        kind, *answers = ok(reply)
        if kind == b"other":
            raise IdempotencyConflict(
                "another unit was carried out under this name", field="name", hint="draw a new name for every unit"
            )
        if kind == b"refused":
            refused, part, _ = steps[answers[0] - 1]
            script.refused(refused, part, answers[1])
            continue
        replies: dict[int, Any] = {}
        doing = [(done, part) for done, part, _ in steps if done != "unit_check"]
        for (done, part), answer in zip(doing, answers, strict=True):
            if script.read(done, part, answer, replies):
                assert part.room is not None
                yield from context.registry.confirm(part.room)
        if kind == b"again":
            replies = {place: _again(value) for place, value in replies.items()}
        return replies


def _again(reply: Any) -> Any:
    return [rows.again(one) if isinstance(one, Message) else one for one in reply] if isinstance(reply, list) else reply


# -- the unit


def together(context: RunContext, unit: Together) -> Asking[list[Any]]:
    parts = yield from _sort(context, unit)
    digest = units.digest(unit)
    name = f"{unit.tenant}/{unit.name or '~' + secrets.token_hex(12)}"
    keep_us = unit.name_us if unit.name else 0
    if not context.registry.sharded or len(parts) == 1:
        tag = parts[0].tag if context.registry.sharded else context.registry.tags.registry
        replies = yield from _carry_out(context, tag, parts, name, keep_us, digest)
    else:
        first, others = _first(parts)
        yield from _look(context, first, others, name)
        intent = _Intent.of(unit.tenant, digest, keep_us, others)
        replies = yield from _carry_out(context, first.tag, [first], name, _REMEMBERED_US, digest, _encode(intent))
        try:
            replies |= yield from _follow(context, first.tag, others, name, digest, keep_us)
        except TampuError as error:
            raise Unavailable(
                f"the unit is decided, and a part of it waits for its server: {error}",
                hint="it is completed as soon as that server is back; do not send it again",
            ) from error
    return _replies(context, unit, replies)


def _first(parts: Sequence[Part]) -> tuple[Part, list[Part]]:
    """The part that decides, and the others."""
    refusable = [part for part in parts if part.refusable]
    if len(refusable) > 1:
        raise InvalidState(
            "on a cluster, only one queue of a unit, or its documents, may hold calls that can be refused",
            hint="settle, cancel and free in one queue; elsewhere publish without an idempotency_key, and put documents"
            " without a version",
        )
    first = next(iter([*refusable, *(part for part in parts if part.limited), *parts]))
    return first, [part for part in parts if part is not first]


def _look(context: RunContext, first: Part, others: Iterable[Part], name: str) -> Asking[None]:
    """Is there room for what follows? Of a unit that is decided, that is not asked any more."""
    asked: list[tuple[Publish, ScriptCall]] = []
    for part in others:
        call = part.publish
        if call is not None and call.max_depth:
            assert part.room is not None
            packed, bodies = [publish.pack_item(item) for item in call.items], [item.packed for item in call.items]
            limits = publish.limits_of(call.slots, call.group_rate)
            ask = publish.ask(context, part.room, call, packed, bodies, limits)
            asked.append((call, ask._replace(command=(*ask.command, 1))))
        part.deep = True
    if asked:
        known, *replies = yield [context.write.plain("HEXISTS", first.tag, "units", name), *(ask for _, ask in asked)]
        for (call, _), reply in zip(asked, replies, strict=True):
            if not ok(known) and len(ok(reply)) > 4:
                publish.refuse(call, reply[4:])


def _follow(
    context: RunContext, tag: str, others: Sequence[Part], name: str, digest: bytes, keep_us: int
) -> Asking[dict[int, Any]]:
    """The rest of a unit that is decided. First the intent goes, then what makes doing it again harmless."""
    replies: dict[int, Any] = {}
    for part in others:
        replies |= yield from _carry_out(context, part.tag, [part], name, _REMEMBERED_US, digest)
    for tags in ([tag], [part.tag for part in others]):
        for reply in (yield [context.write.script("unit_over", one, name, keep_us) for one in tags]):
            ok(reply)
    return replies


def _replies(context: RunContext, unit: Together, found: dict[int, Any]) -> list[Any]:
    replies: list[Any] = []
    for place, call in enumerate(unit.calls):
        reply = found[place]
        if isinstance(reply, dict):
            reply = [reply[item] for item in range(len(reply))]
        if isinstance(call, Settle):
            outcomes: list[Outcome] = reply
            for queue, count in call.freed(outcomes).items():
                context.became_ready((call.tenant, queue), count)
        replies.append(reply)
    return replies


# -- intents


class _Intent(msgspec.Struct, frozen=True, array_like=True):
    """The calls for other slots."""

    tenant: str
    digest: bytes
    keep_us: int
    publishes: list[Publish]
    """Without the bodies of their items, which are in the packed ones."""
    documents: list[tuple[str, str, bytes | None]]
    """(kind, name, value); without a value it is deleted"""

    @classmethod
    def of(cls, tenant: str, digest: bytes, keep_us: int, parts: Iterable[Part]) -> _Intent:
        publishes, changes = [], []
        for part in parts:
            if part.publish is not None:
                items = [msgspec.structs.replace(item, body=_NO_BODY) for item in part.publish.items]
                publishes.append(msgspec.structs.replace(part.publish, items=items, max_depth=0))
            changes += [
                (one.kind, one.name, one.value if isinstance(one, PutDocument) else None) for _, one in part.documents
            ]
        return cls(tenant, digest, keep_us, publishes, changes)

    @property
    def unit(self) -> Together:
        publishes = [
            msgspec.structs.replace(
                call, items=[msgspec.structs.replace(item, body=unpack_body(item.packed)) for item in call.items]
            )
            for call in self.publishes
        ]
        changes: list[PutDocument | DeleteDocument] = [
            DeleteDocument(kind, self.tenant, name) if value is None else PutDocument(kind, self.tenant, name, value)
            for kind, name, value in self.documents
        ]
        return Together(self.tenant, [*publishes, *changes])


_NO_BODY = Body("", b"")
_encode = msgspec.msgpack.Encoder().encode
_decode = from_msgpack(_Intent).decode


def complete_all(context: RunContext, tag: str, flat: Sequence[bytes]) -> Asking[int]:
    """Carry out what is left of units that somebody began under a tag: [name, intent, …]; of how many."""
    done = 0
    for name, raw in zip(flat[::2], flat[1::2], strict=True):
        try:
            intent = _decode(raw)
        except msgspec.MsgspecError as error:
            log.error("a unit of a newer tampu can not be completed by this one: %s", error)
            continue
        try:
            parts = yield from _sort(context, intent.unit)
            yield from _follow(context, tag, parts, name.decode(), intent.digest, intent.keep_us)
        except TampuError as error:  # it is told of again in a while
            log.warning("a unit of tenant %s can not be completed yet: %s", intent.tenant, error)
            continue
        done += 1
    return done
