"""cancel, free, replay, purge, rerank, regroup: what people do to single messages and to whole queues.

Contract of the first three: one outcome per item, in order; an id that is not the tenant's is NotFound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tampu.engines.groups import stored
from tampu.engines.port import Cancel, Free, Purge, Regroup, Replay, Rerank
from tampu.engines.redis import ids, rows
from tampu.engines.redis.queue_registry import QueueEntry, QueueRegistry
from tampu.engines.redis.run_context import RunContext
from tampu.engines.redis.script_calls import Asking, ok
from tampu.model.errors import InvalidState, NotFound, TampuError
from tampu.model.message import State
from tampu.model.outcome import Outcome
from tampu.model.rank import rank

Placed = tuple[QueueEntry, str]
"""A queue, and what a message is called there: its number, or the id the user gave."""
_CURSORS = 1 << 64
"""More than a server has cursors for a scan."""


def by_id(registry: QueueRegistry, tenant: str, wanted: Sequence[str]) -> Asking[list[Placed | None]]:
    """Where the messages of ids that we made would be."""
    parsed = [ids.parse(id) for id in wanted]
    rooms = yield from registry.by_tails({one[0] for one in parsed if one is not None})
    found: list[Placed | None] = []
    for one in parsed:
        room = None if one is None else rooms.get(one[0])
        found.append((room, one[1]) if one is not None and room is not None and room.tenant == tenant else None)
    return found


def by_name(registry: QueueRegistry, tenant: str, wanted: Sequence[str]) -> Asking[list[Placed | None]]:
    """Where the messages of ids that the user gave would be."""
    fields = [field for id in wanted for field in (f"o{id}", f"s{id[:26]}")]
    (reply,) = yield [registry.write.plain("HMGET", registry.tags.tenant(tenant), "names", *fields)]
    known = [own or id_prefix for own, id_prefix in zip(ok(reply)[::2], reply[1::2], strict=True)]
    queues = [None if one is None else rows.decode(one)[1] for one in known]
    names = list(dict.fromkeys(queue for queue in queues if queue is not None))
    rooms = dict(zip(names, (yield from registry.known_ones(tenant, names)), strict=True))
    found: list[Placed | None] = []
    for id, queue in zip(wanted, queues, strict=True):
        room = rooms.get(queue)
        found.append(None if room is None else (room, id))
    return found


def steer(context: RunContext, script: str, call: Cancel | Free | Replay) -> Asking[list[Outcome]]:
    """Carry out one of the scripts on each id: first where our own ids lead, then by name."""
    answers: dict[int, list[Any] | TampuError] = {}
    left = list(enumerate(call.ids))
    for way in (by_id, by_name):
        if not left:
            break
        groups: dict[QueueEntry, list[tuple[int, str]]] = {}
        placed = yield from way(context.registry, call.tenant, [id for _, id in left])
        for (place, _), found in zip(left, placed, strict=True):
            if found is not None:
                groups.setdefault(found[0], []).append((place, found[1]))
        if groups:
            replies = yield [
                context.write.script(script, room.tag, rows.encode([name for _, name in names]), *_more(call, names))
                for room, names in groups.items()
            ]
            for (room, names), reply in zip(groups.items(), replies, strict=True):
                if isinstance(reply, TampuError):  # of one server of several: the others' answers hold
                    answers.update({place: reply for place, _ in names})
                    continue
                for (place, _), answer in zip(names, context.heard(room, reply)[2:], strict=True):
                    if answer[0] >= 0:
                        answers[place] = answer
        left = [(place, id) for place, id in left if place not in answers]
    return [outcome(script, id, answers.get(place)) for place, id in enumerate(call.ids)]


def _more(call: Cancel | Free | Replay, names: list[tuple[int, str]]) -> list[bytes]:
    """What a replay says of each message beside its name."""
    return [rows.encode([call.max_attempts[place] for place, _ in names])] if isinstance(call, Replay) else []


def outcome(script: str, id: str, answer: list[Any] | TampuError | None) -> Outcome:
    if isinstance(answer, TampuError):
        return Outcome(id, None, answer)
    if answer is None:
        return Outcome(id, None, NotFound(f"no message {id}", field="id"))
    done, code, *context = answer
    if done:
        return Outcome(id, rows.STATES[code])
    state = rows.STATES[code]
    error: TampuError
    if script == "cancel":
        error = InvalidState(f"the message is {state}: nothing to cancel")
    elif script == "release_held" and context[0]:
        error = InvalidState("the message waits for its turn in its group", hint="it goes on by itself")
    else:
        error = InvalidState(f"the message is {state}, not {'held' if script == 'release_held' else 'dead'}")
    return Outcome(id, None, error)


def purge(context: RunContext, call: Purge) -> Asking[int]:
    room = yield from context.registry.present(call.tenant, call.queue)
    if room is None:
        raise NotFound(f"no queue {call.queue}", field="queue")
    if call.state is State.LEASED:
        raise InvalidState("leased messages can not be purged", hint="cancel them, or wait for their end")
    (reply,) = yield [context.write.script("purge", room.tag, rows.CODE[call.state], call.limit)]
    return int(context.heard(room, reply)[2])


def rerank(context: RunContext, call: Rerank) -> Asking[int | None]:
    """About so many messages get the rank of the new ordering; ``after`` is a block, and the cursor of a scan in it."""
    room = yield from context.registry.known(call.tenant, call.queue)
    if room is None:
        return None
    block, cursor = divmod(call.after, _CURSORS)
    (reply,) = yield [
        context.write.script("page_ranks", room.tag, f"{block:011x}" if block else "", cursor, call.limit)
    ]
    next_block, cursor, *flat = ok(reply)
    changes: list[str] = []
    for seq, old, created, priority, deadline in zip(*(flat[i::5] for i in range(5)), strict=True):
        new = rows.rank_text(rank(call.ordering, call.ageing_us, priority, deadline, created))
        if new.encode() != old:
            changes += [seq.decode(), new]
    if changes:
        (reply,) = yield [context.write.script("rerank", room.tag, rows.encode(changes))]
        ok(reply)
    return int(next_block or b"0", 16) * _CURSORS + int(cursor) or None


def regroup(context: RunContext, call: Regroup) -> Asking[str | None]:
    """Groups have so many places from now on; ``after`` is the cursor of a scan."""
    room = yield from context.registry.known(call.tenant, call.queue)
    if room is None:
        return None
    limits = (stored(call.slots), call.after or "0", call.limit, *rows.group_rate(call.group_rate))
    (reply,) = yield [context.write.script("regroup", room.tag, *limits)]
    cursor: str = context.heard(room, reply)[2].decode()
    return None if cursor == "0" else cursor
