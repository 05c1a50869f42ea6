"""cancel, free, replay and its undo, purge, remove, rerank, regroup: changes to single messages and to whole queues.

Contract of the first three: one outcome per item, in order; NotFound for an id that the tenant does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tampu.engines.groups import stored
from tampu.engines.port import Cancel, Free, Purge, Regroup, Remove, Replay, Rerank, UndoReplay
from tampu.engines.redis import rows
from tampu.engines.redis.connection.script_calls import Operation, ok
from tampu.engines.redis.queue_registry import QueueEntry, QueueRegistry, RunContext
from tampu.engines.rules import correlation_word, leased, not_waiting
from tampu.model.errors import InvalidState, NotFound, TampuError
from tampu.model.message import State, unpack_body
from tampu.model.outcome import Outcome
from tampu.model.rank import rank

Located = tuple[QueueEntry, str]
"""A queue and the name of a message in it: its number, or the id the user gave."""
Steered = Cancel | Free | Remove | Replay | UndoReplay
"""A call that changes messages by their ids."""
_WANTED: dict[type, str] = {Free: "held", Replay: "dead", UndoReplay: "waiting for its delivery"}
_CURSORS = 1 << 64
"""Larger than any cursor of a scan."""


def by_id(registry: QueueRegistry, tenant: str, wanted: Sequence[str]) -> Operation[list[Located | None]]:
    """Queue and number of messages whose ids tampu made. The messages may not exist."""
    made = yield from registry.by_ids(wanted)
    found = {id: (entry, number) for id, (entry, number) in made.items() if entry.tenant == tenant}
    return [found.get(id) for id in wanted]


def by_name(registry: QueueRegistry, tenant: str, wanted: Sequence[str]) -> Operation[list[Located | None]]:
    """Queue and id of messages whose ids the user gave. The messages may not exist."""
    fields = [field for id in wanted for field in (f"o{id}", f"s{id[:26]}")]
    (reply,) = yield [registry.write.plain("HMGET", registry.tags.tenant(tenant), "names", *fields)]
    known = [own or id_prefix for own, id_prefix in zip(ok(reply)[::2], reply[1::2], strict=True)]
    queues = []
    for one in known:
        _, queue, *_ = (None, None) if one is None else rows.decode(one)
        queues.append(queue)
    names = list(dict.fromkeys(queue for queue in queues if queue is not None))
    entries = dict(zip(names, (yield from registry.find_many(tenant, names)), strict=True))
    found: list[Located | None] = []
    for id, queue in zip(wanted, queues, strict=True):
        entry = entries.get(queue)
        found.append(None if entry is None else (entry, id))
    return found


class Named(NamedTuple):
    """A message that a call names."""

    call: Steered
    item: int
    """Its index in the call."""
    name: str
    """Its number, or the id the user gave."""

    @property
    def id(self) -> str:
        return self.call.ids[self.item]


def steer(context: RunContext, script: str, call: Steered) -> Operation[list[Outcome]]:
    """Run a script on each id. Tries it as an id that tampu made first, then as one that the user gave."""
    answers: dict[int, list[Any] | TampuError] = {}
    left = list(range(len(call.ids)))
    for way in (by_id, by_name):
        if not left:
            break
        groups: dict[QueueEntry, list[Named]] = {}
        located = yield from way(context.registry, call.tenant, [call.ids[item] for item in left])
        for item, found in zip(left, located, strict=True):
            if found is not None:
                entry, name = found
                groups.setdefault(entry, []).append(Named(call, item, name))
        if groups:
            replies = yield [
                context.write.script(script, entry.tag, *arguments(named)) for entry, named in groups.items()
            ]
            for (entry, named), reply in zip(groups.items(), replies, strict=True):
                if isinstance(reply, TampuError):  # one server of several failed: the other answers count
                    answers.update({one.item: reply for one in named})
                    continue
                for one, answer in zip(named, context.read_reply(entry, reply), strict=True):
                    if answer[0] >= 0:
                        answers[one.item] = answer
        left = [item for item in left if item not in answers]
    return [outcome(call, id, answers.get(item)) for item, id in enumerate(call.ids)]


def arguments(named: Sequence[Named]) -> list[bytes]:
    """The arguments of a script: the names of the messages, a map for each that says how to change it, and bodies."""
    bodies: list[bytes] = []
    how = [_how(one, bodies) for one in named]
    return [rows.encode([one.name for one in named]), rows.encode(how), *bodies]


def _how(one: Named, bodies: list[bytes]) -> dict[str, Any]:
    """How to change a message. Its new body is added to ``bodies``."""
    call = one.call
    how: dict[str, Any] = {"w": call.actor}
    if isinstance(call, Replay):
        how["m"] = call.max_attempts[one.item]
    elif isinstance(call, UndoReplay):
        how |= {"d": call.reasons[one.item], "a": call.attempts[one.item]}
    elif isinstance(call, Cancel):
        how |= {"d": call.dead, "e": call.error, "r": call.reason, "h": call.held_for}
    elif isinstance(call, Free):
        how["h"] = call.held_for
        body = call.bodies[one.item] if call.bodies else None
        if body is not None:
            bodies.append(body)
            new = unpack_body(body)
            how |= {"b": len(bodies), "t": new.type}
            if new.correlation_id is not None:
                how["c"] = correlation_word(call.tenant, new.correlation_id).hex()
    return {name: value for name, value in how.items() if value is not None}


def outcome(call: Steered, id: str, answer: list[Any] | TampuError | None) -> Outcome:
    if isinstance(answer, TampuError):
        return Outcome(id, None, answer)
    if answer is None:
        return Outcome(id, None, NotFound(f"no message {id}", field="id"))
    done, code, *context = answer
    if done:
        return Outcome(id, rows.STATES[code])
    state = rows.STATES[code]
    error: TampuError
    if isinstance(call, Cancel):
        error = not_waiting(call, state)
    elif isinstance(call, Remove):
        error = leased()
    elif isinstance(call, Free) and context[0]:
        error = InvalidState("the message waits for its turn in its group", hint="it continues by itself")
    else:
        error = InvalidState(f"the message is {state}, not {_WANTED[type(call)]}")
    return Outcome(id, None, error)


def purge(context: RunContext, call: Purge) -> Operation[int]:
    entry = yield from context.registry.find_existing(call.tenant, call.queue)
    if entry is None:
        raise NotFound(f"no queue {call.queue}", field="queue")
    if call.state is State.LEASED:
        raise InvalidState("leased messages cannot be purged", hint="cancel them, or wait until they end")
    names: bytes | str = ""
    if call.ids is not None:
        made = yield from context.registry.by_ids(call.ids)
        of_queue = {id: number for id, (its_entry, number) in made.items() if its_entry == entry}
        names = rows.encode([of_queue.get(id, id) for id in call.ids])
    until = "" if call.until_us is None else call.until_us
    arguments = (rows.CODE[call.state], call.limit, call.actor or "", until, names)
    (reply,) = yield [context.write.script("purge", entry.tag, *arguments)]
    (purged,) = context.read_reply(entry, reply)
    return int(purged)


def rerank(context: RunContext, call: Rerank) -> Operation[int | None]:
    """Give about ``limit`` messages the rank of the new ordering. ``after`` is a block and a scan cursor in it."""
    entry = yield from context.registry.find(call.tenant, call.queue)
    if entry is None:
        return None
    block, cursor = divmod(call.after, _CURSORS)
    (reply,) = yield [
        context.write.script("page_ranks", entry.tag, f"{block:011x}" if block else "", cursor, call.limit)
    ]
    next_block, cursor, *flat = ok(reply)
    changes: list[str] = []
    for seq, old, created, priority, deadline in zip(*(flat[i::5] for i in range(5)), strict=True):
        new = rows.rank_text(rank(call.ordering, call.ageing_us, priority, deadline, created))
        if new.encode() != old:
            changes += [seq.decode(), new]
    if changes:
        (reply,) = yield [context.write.script("rerank", entry.tag, rows.encode(changes))]
        ok(reply)
    return int(next_block or b"0", 16) * _CURSORS + int(cursor) or None


def regroup(context: RunContext, call: Regroup) -> Operation[str | None]:
    """Set the slots and the rate of groups. ``after`` is a scan cursor."""
    entry = yield from context.registry.find(call.tenant, call.queue)
    if entry is None:
        return None
    limits = (stored(call.slots), call.after or "0", call.limit, *rows.group_rate(call.group_rate))
    (reply,) = yield [context.write.script("regroup", entry.tag, *limits)]
    (cursor,) = context.read_reply(entry, reply)
    return None if cursor == b"0" else cursor.decode()
