"""Units: calls of several kinds, and of several queues, all or none.

A single server runs a unit in one script. On a cluster, one script can only change one slot. There the first script
decides: it checks, does its part, and stores an *intent*: the calls for the other slots. These follow at once, each in
a script that remembers the unit, so that none is done twice. Then the intent is removed, and after it what the others
remember. A process that dies in between leaves the intent, and maintenance completes the unit from it.

Calls that follow cannot be refused. So only the first slot may have calls that can: settles, extends, cancels, frees,
documents with a version, idempotency keys. A ``max_depth`` in another slot is checked before; units that run at the
same time may exceed it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from tampu.engines import units
from tampu.engines.port import Cancel, DeleteDocument, Extend, Extended, Free, Publish, PutDocument, Settle, Together
from tampu.engines.redis import rows
from tampu.engines.redis.connection.script_calls import Operation, ScriptCall, ok
from tampu.engines.redis.queue_registry import QueueEntry, RunContext
from tampu.engines.redis.verbs import admin, documents, publish, reservations, settle
from tampu.engines.rules import all_done_at_once, lost, made_by_the_store, of_another_queue
from tampu.model.decoders import from_msgpack
from tampu.model.errors import IdempotencyConflict, InvalidState, NotFound, TampuError, Unavailable
from tampu.model.message import Body, Message, unpack_body
from tampu.model.outcome import Outcome

log = logging.getLogger("tampu")
_CHECK_AFTER_US = 2_000_000
"""After this time maintenance checks whether a unit is complete."""
_REMEMBERED_US = 7 * 86_400_000_000
"""How long a slot remembers its part while an intent may exist: longer than any outage of a server."""
_ENDING = frozenset({"ack", "reject"})
"""Verbs after which a message no longer counts for ``max_depth``."""


class Part:
    """The calls of a unit for one tag. A position is that of a call in the unit; an item index is within its call."""

    def __init__(self, tag: str, entry: QueueEntry | None) -> None:
        self.tag = tag
        self.entry = entry
        self.publishes: list[tuple[int, Publish]] = []
        self.settles: list[int] = []
        self.batch = settle.Batch()
        self.extends: list[tuple[int, int, settle.ExtendItem]] = []
        """(position, item index, item)"""
        self.named: dict[str, list[tuple[int, admin.Named]]] = {"cancel": [], "release_held": []}
        """(position, message)"""
        self.documents: list[tuple[int, PutDocument | DeleteDocument]] = []
        self.deep = False
        """Ignore max_depth: the unit is decided."""

    @property
    def refusable(self) -> bool:
        """True if it may be refused in spite of earlier checks."""
        return bool(
            self.batch.items
            or self.extends
            or any(self.named.values())
            or any(item.body.idempotency_key is not None for _, call in self.publishes for item in call.items)
            or any(call.version is not None for _, call in self.documents)
        )

    @property
    def limited(self) -> bool:
        return any(call.max_depth for _, call in self.publishes)

    @property
    def publish(self) -> Publish | None:
        """All publishes of this part as one call, so that max_depth counts them together."""
        if not self.publishes:
            return None
        _, call = self.publishes[0]
        ending = sum(item.verb in _ENDING for item in self.batch.items)
        if len(self.publishes) == 1 and not call.max_depth:
            return call
        return msgspec.structs.replace(
            call,
            items=[item for _, one in self.publishes for item in one.items],
            simple=all(one.simple and not one.max_depth for _, one in self.publishes),
            max_depth=0 if self.deep or not call.max_depth else call.max_depth + ending,
        )


def _is_simple(call: Publish) -> bool:
    """True if `publish_simple.lua` can store it."""
    return call.simple or (all_done_at_once(call.items) and not any(rows.kept_fields(item.body) for item in call.items))


# -- sorting the calls


def _sort(context: RunContext, unit: Together) -> Operation[list[Part]]:
    """The parts of a unit. Raises if the unit can be refused already."""
    parts: dict[str, Part] = {}

    def part(entry: QueueEntry | None) -> Part:
        tag = context.registry.tags.registry if entry is None else entry.tag
        return parts.setdefault(tag, Part(tag, entry))

    for position, call in enumerate(unit.calls):
        if isinstance(call, Publish):
            part((yield from context.registry.register(call.tenant, call.queue))).publishes.append((position, call))
        elif isinstance(call, Settle):
            for i, item in enumerate(call.items):
                entry = yield from context.registry.find(call.tenant, item.queue)
                if entry is None:
                    raise lost()
                found = part(entry)
                found.batch.add(i, item, *rows.parse_receipt(item.receipt))
                found.settles.append(position)
        elif isinstance(call, Extend):
            for i, (queue, _, _) in enumerate(call.items):
                extended = settle.extend_item(call, i)
                entry = yield from context.registry.find(call.tenant, queue)
                if entry is None or not settle.may_be(entry, extended):
                    raise lost()
                part(entry).extends.append((position, i, extended))
        elif isinstance(call, Cancel | Free):
            verb = "cancel" if isinstance(call, Cancel) else "release_held"
            for i, (entry, name) in enumerate((yield from _find(context, call))):
                part(entry).named[verb].append((position, admin.Named(call, i, name)))
        else:
            if documents.creates_queue(call):
                yield from context.registry.register(call.tenant, call.name)
            part(None).documents.append((position, call))
    return list(parts.values())


def _find(context: RunContext, call: Cancel | Free) -> Operation[list[admin.Located]]:
    """The queues of messages, by ids that tampu made or that users gave."""
    registry = context.registry
    located = yield from admin.by_id(registry, call.tenant, call.ids)
    by_number = [(i, location) for i, location in enumerate(located) if location is not None]
    if by_number:
        replies = yield [context.write.script("get_message", entry.tag, number) for _, (entry, number) in by_number]
        for (i, _), reply in zip(by_number, replies, strict=True):
            if ok(reply) is None:
                located[i] = None
    missing = [i for i, location in enumerate(located) if location is None]
    if missing:
        found = yield from admin.by_name(registry, call.tenant, [call.ids[i] for i in missing])
        for i, location in zip(missing, found, strict=True):
            if location is None:
                raise NotFound(f"no message {call.ids[i]}", field="id")
            located[i] = location
    return [location for location in located if location is not None]


# -- one script


class _Script:
    """The steps of one script, and how its answers are read."""

    def __init__(self, context: RunContext, parts: Sequence[Part], *, decided: bool) -> None:
        self._context = context
        self._parts = parts
        self._decided = decided
        """It follows another script of the unit, and cannot be refused any more."""
        self._packed: dict[str, list[dict[str, Any]]] = {}
        self._names: dict[str, reservations.Reservations] = {}
        for part in parts:
            call = part.publish
            if call is not None:
                assert part.entry is not None
                items = () if _is_simple(call) else call.items
                self._packed[part.tag] = [publish.pack_item(call.tenant, item) for item in items]
                if reservations.needed(call.items):
                    self._names[part.tag] = reservations.Reservations(context, part.entry, call.items)

    def reserve(self) -> Operation[None]:
        for tag, names in self._names.items():
            yield from names.reserve(self._packed[tag], leave_taken=self._decided)

    def steps(self) -> Iterator[tuple[str, Part, Sequence[Any]]]:
        """(script, part, arguments). Checks come first; answers come in the order of the changes."""
        doing: list[tuple[str, Part, Sequence[Any]]] = []
        simple: dict[int, tuple[Sequence[Any], Sequence[Any]]] = {}
        """(items, arguments) by the identity of the items: it is theirs as long as they are kept."""
        for part in self._parts:
            settled: Sequence[Any] = ()
            if part.batch.items:
                assert part.entry is not None
                settled = _arguments(settle.settle_call(self._context, part.entry, part.batch))
            named = {verb: admin.arguments([one for _, one in found]) for verb, found in part.named.items()}
            calls = [call for _, call in part.documents]
            checked = rows.encode(documents.items_of(self._context.registry, calls))
            if part.refusable:
                leases: list[Any] = [*zip(part.batch.seqs, part.batch.leases, strict=True)]
                leases += [(seq, lease, id) for _, _, (seq, lease, _, id) in part.extends]
                yield "unit_check", part, (rows.encode(leases), *named["cancel"], named["release_held"][0], checked)
            if calls:
                doing.append(("change_documents", part, _arguments(documents.change_call(self._context, calls))))
            if settled:
                doing.append(("settle", part, settled))
            if part.extends:
                doing.append(("extend", part, (rows.encode([item for _, _, item in part.extends]),)))
            call = part.publish
            if call is not None and _is_simple(call):
                if id(call.items) not in simple:
                    simple[id(call.items)] = call.items, publish.simple_arguments(call.items)
                _, arguments = simple[id(call.items)]
                doing.append(("publish_simple", part, arguments))
            elif call is not None:
                assert part.entry is not None
                bodies = [item.packed for item in call.items]
                asked = publish.publish_call(
                    self._context,
                    part.entry,
                    call,
                    self._packed[part.tag],
                    bodies,
                    publish.limits_of(call.slots, call.group_rate),
                )
                doing.append(("publish", part, _arguments(asked)))
            doing.extend((verb, part, named[verb]) for verb, found in part.named.items() if found)
        yield from doing

    def refused(self, script: str, part: Part, answer: list[Any]) -> None:
        """Raise the reason. Returns if the unit is to be tried again."""
        if script == "publish":
            _, _, _, _, why, *void = answer
            if why == b"void":
                self._names[part.tag].lose(void)
                return
            _, call = part.publishes[0]
            publish.refuse(call, [why])
        raw_verb, which, *found = answer
        verb = raw_verb.decode()
        if verb == "lease":
            raise lost()
        if verb == "documents":
            _, change = part.documents[which - 1]
            raise documents.version_conflict(change)
        _, one = part.named[verb][which - 1]
        error = admin.outcome(one.call, one.id, None if found[0] == -1 else [0, *found]).error
        assert error is not None
        raise error

    def read(self, script: str, part: Part, answer: list[Any], replies: dict[int, Any]) -> bool:
        """Add a step's answer to ``replies``. True if it created the queue."""
        if script == "change_documents":
            calls = [call for _, call in part.documents]
            for (position, _), reply in zip(part.documents, documents.replies_of(calls, answer), strict=True):
                replies[position] = reply
            return False
        assert part.entry is not None
        found = self._context.read_reply(part.entry, answer)
        if script == "publish_simple":
            new, now, first = found
            made: list[Message] = []
            if not all(call.copy for _, call in part.publishes):
                items = [item for _, call in part.publishes for item in call.items]
                made = publish.simple_messages(part.entry, items, now, first)
            for position, call in part.publishes:
                replies[position], made = [] if call.copy else made[: len(call.items)], made[len(call.items) :]
            return bool(new)
        if script == "publish":
            new, now, *stored = found
            for position, call in part.publishes:
                mine, stored = stored[: len(call.items)], stored[len(call.items) :]
                replies[position] = publish.messages_of(part.entry, call.items, mine, now)
            return bool(new)
        if script == "settle":
            outcomes = settle.settle_outcomes(part.entry, part.batch, found)
            for position, item, outcome in zip(part.settles, part.batch.positions, outcomes, strict=True):
                replies.setdefault(position, {})[item] = outcome
            return False
        if script == "extend":
            for (position, item, _), (until, cancel) in zip(part.extends, found, strict=True):
                replies.setdefault(position, {})[item] = Extended(until, bool(cancel))
            return False
        for (position, one), changed in zip(part.named[script], found, strict=True):
            replies.setdefault(position, {})[one.item] = admin.outcome(one.call, one.id, changed)
        return False


def _flat(steps: Sequence[tuple[str, Part, Sequence[Any]]]) -> tuple[bytes, list[Any]]:
    """The steps as `unit.lua` takes them, and their arguments; the same arguments are sent once."""
    head: list[tuple[str, str, int]] = []
    flat: list[Any] = []
    first: dict[int, int] = {}
    for number, (script, part, arguments) in enumerate(steps, 1):
        same = first.setdefault(id(arguments), number)
        head.append((script, part.tag, len(arguments) if same == number else -same))
        if same == number:
            flat.extend(arguments)
    return rows.encode(head), flat


def _arguments(call: ScriptCall) -> Sequence[Any]:
    """The arguments of a script after its keys and the time."""
    return call.command[6:]


def _run_script(
    context: RunContext,
    tag: str,
    parts: Sequence[Part],
    name: str,
    keep_us: int,
    digest: bytes,
    intent: bytes = b"",
    *,
    decided: bool = False,
) -> Operation[dict[int, Any]]:
    """Run one script. Returns the replies by position; raises if it was refused."""
    script = _Script(context, parts, decided=decided)
    while True:
        yield from script.reserve()
        steps = list(script.steps())
        head, flat = _flat(steps)
        (reply,) = yield [
            context.write.script("unit", tag, name, keep_us, digest.hex(), intent, _CHECK_AFTER_US, head, *flat),
        ]
        kind, *answers = ok(reply)
        if kind == b"other":
            raise IdempotencyConflict(
                "this name was used for another unit", field="name", hint="use a new name for every unit"
            )
        if kind == b"refused":
            step, why = answers
            refused, part, _ = steps[step - 1]
            script.refused(refused, part, why)
            continue
        replies: dict[int, Any] = {}
        doing = [(done, part) for done, part, _ in steps if done != "unit_check"]
        for (done, part), answer in zip(doing, answers, strict=True):
            if script.read(done, part, answer, replies):
                assert part.entry is not None
                yield from context.registry.confirm(part.entry)
        if kind == b"again":
            replies = {position: _again(value) for position, value in replies.items()}
        return replies


def _again(reply: Any) -> Any:
    return [rows.again(one) if isinstance(one, Message) else one for one in reply] if isinstance(reply, list) else reply


# -- the unit


def together(context: RunContext, unit: Together) -> Operation[list[Any]]:
    given = (item.id for call in unit.calls if isinstance(call, Publish) for item in call.items if item.id)
    if (yield from context.registry.by_ids(given)):
        raise made_by_the_store()
    parts = yield from _sort(context, unit)
    digest = units.digest(unit) if unit.name else b""
    name = f"{unit.tenant}/{unit.name or '~' + secrets.token_hex(12)}"
    keep_us = unit.name_us if unit.name else 0
    if not context.registry.sharded or len(parts) == 1:
        tag = parts[0].tag if context.registry.sharded else context.registry.tags.registry
        replies = yield from _run_script(context, tag, parts, name, keep_us, digest)
    else:
        first, others = _first(parts)
        yield from _check_ids(context, others)
        yield from _check_depth(context, first, others, name)
        intent = _Intent.of(unit.tenant, digest, keep_us, others)
        replies = yield from _run_script(context, first.tag, [first], name, _REMEMBERED_US, digest, _encode(intent))
        try:
            replies |= yield from _follow(context, first.tag, others, name, digest, keep_us)
        except TampuError as error:
            raise Unavailable(
                f"the unit is accepted, but a part of it waits for its server: {error}",
                hint="it completes as soon as that server is back; do not send it again",
            ) from error
    for call in unit.calls:
        entry = context.registry.known(call.tenant, call.name) if documents.creates_queue(call) else None
        if entry is not None:
            entry.exists = True
    return _replies(context, unit, replies)


def _first(parts: Sequence[Part]) -> tuple[Part, list[Part]]:
    """The part that decides, and the others."""
    refusable = [part for part in parts if part.refusable]
    if len(refusable) > 1:
        raise InvalidState(
            "on a cluster, calls that can be refused must all be in one queue, or all be documents",
            hint="settle, cancel and free in one queue; elsewhere publish without an idempotency_key, and put documents"
            " without a version",
        )
    first = next(iter([*refusable, *(part for part in parts if part.limited), *parts]))
    return first, [part for part in parts if part is not first]


def _check_ids(context: RunContext, others: Iterable[Part]) -> Operation[None]:
    """Refuse the unit if messages of other queues have its ids. Reserves them."""
    for part in others:
        call = part.publish
        if call is not None and reservations.needed(call.items):
            assert part.entry is not None
            packed: list[dict[str, Any]] = [{} for _ in call.items]
            yield from reservations.Reservations(context, part.entry, call.items).reserve(packed)
            if any("f" in item for item in packed):
                raise of_another_queue()


def _check_depth(context: RunContext, first: Part, others: Iterable[Part], name: str) -> Operation[None]:
    """Refuse the unit if it exceeds the max_depth of another slot. Not checked again once the unit is decided."""
    dry_runs: list[tuple[Publish, ScriptCall]] = []
    for part in others:
        call = part.publish
        if call is not None and call.max_depth:
            assert part.entry is not None
            packed, bodies = (
                [publish.pack_item(call.tenant, item) for item in call.items],
                [item.packed for item in call.items],
            )
            limits = publish.limits_of(call.slots, call.group_rate)
            script = publish.publish_call(context, part.entry, call, packed, bodies, limits)
            dry_runs.append((call, script._replace(command=(*script.command, 1))))
        part.deep = True
    if dry_runs:
        decided = context.write.plain("HEXISTS", first.tag, "units", name)
        is_decided, *replies = yield [decided, *(script for _, script in dry_runs)]
        for (call, _), reply in zip(dry_runs, replies, strict=True):
            if not ok(is_decided) and len(ok(reply)) > 4:
                publish.refuse(call, reply[4:])


def _follow(
    context: RunContext, tag: str, others: Sequence[Part], name: str, digest: bytes, keep_us: int
) -> Operation[dict[int, Any]]:
    """Run the rest of a decided unit. Removes the intent before the marks that make a repeat harmless."""
    replies: dict[int, Any] = {}
    for part in others:
        replies |= yield from _run_script(context, part.tag, [part], name, _REMEMBERED_US, digest, decided=True)
    for tags in ([tag], [part.tag for part in others]):
        for reply in (yield [context.write.script("unit_over", one, name, keep_us) for one in tags]):
            ok(reply)
    return replies


def _replies(context: RunContext, unit: Together, found: dict[int, Any]) -> list[Any]:
    replies: list[Any] = []
    for position, call in enumerate(unit.calls):
        reply = found[position]
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
    """Items without their bodies, which are in ``packed``."""
    documents: list[tuple[str, str, bytes | None]]
    """(kind, name, value); value None to delete"""

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


def complete_all(context: RunContext, tag: str, flat: Sequence[bytes]) -> Operation[int]:
    """Complete units that began under a tag, given [name, intent, …]. Returns how many were completed."""
    done = 0
    for name, raw in zip(flat[::2], flat[1::2], strict=True):
        try:
            intent = _decode(raw)
        except msgspec.MsgspecError as error:
            log.error("cannot complete a unit of a newer tampu, upgrade this process: %s", error)
            continue
        try:
            parts = yield from _sort(context, intent.unit)
            yield from _follow(context, tag, parts, name.decode(), intent.digest, intent.keep_us)
        except TampuError as error:  # maintenance tries again in a while
            log.warning("cannot complete a unit of tenant %s yet, retrying: %s", intent.tenant, error)
            continue
        done += 1
    return done
