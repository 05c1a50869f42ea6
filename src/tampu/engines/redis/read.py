"""get, list, stats: looking without changing. Each message, page and queue is read in one script."""

from __future__ import annotations

import re
from typing import Any

from tampu.engines.port import Page, QueueStats
from tampu.engines.redis import admin, rows
from tampu.engines.redis.queue_registry import QueueRegistry
from tampu.engines.redis.script_calls import Asking, ok
from tampu.model.errors import InvalidMessage
from tampu.model.message import Message, State

_MEMBER = re.compile(r"[0-9a-f]{16}(?:[0-9a-f]{16}){0,2}\Z")
_BY_MEMBER = (State.READY, State.HELD)


def get(registry: QueueRegistry, tenant: str, id: str) -> Asking[Message | None]:
    for way in (admin.by_id, admin.by_name):
        (placed,) = yield from way(registry, tenant, [id])
        if placed is not None:
            room, name = placed
            (reply,) = yield [registry.write.script("get_message", room.tag, name)]
            if ok(reply) is not None:
                seq, raw, place, failed, kept, error, now = reply
                failures = rows.failures(failed)
                return rows.message(room, seq.decode(), raw, place, error, failures, rows.result(kept, now))
    return None


def page(
    registry: QueueRegistry, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
) -> Asking[Page | None]:
    """Keyset pages: the cursor is a member of the index, with its time where the index is by time."""
    room = yield from registry.present(tenant, queue)
    if room is None:
        return None
    (reply,) = yield [registry.write.script("page_messages", room.tag, str(state), limit, *cursor_after(state, after))]
    flat = ok(reply)
    messages = [
        rows.message(room, flat[i][-16:].decode(), flat[i + 2], flat[i + 3], flat[i + 4])
        for i in range(0, len(flat), 5)
    ]
    return Page(messages, cursor_of(state, flat[-5], flat[-4]) if len(messages) == limit else None)


def cursor_of(state: State, member: bytes, score: bytes) -> tuple[Any, ...]:
    """Where the next page starts, after this member of the index."""
    return (member.decode(),) if state in _BY_MEMBER else (int(float(score)), member.decode())


def cursor_after(state: State, after: tuple[Any, ...] | None) -> tuple[str, int | str]:
    """(member, score) as the scripts take them."""
    match after or ():
        case ():
            return "", ""
        case (str(member),) if state in _BY_MEMBER and _MEMBER.match(member):
            return member, ""
        case (int(score), str(member)) if state not in _BY_MEMBER and _MEMBER.match(member):
            return member, score
    raise InvalidMessage("after is not a cursor of these messages", field="after")


def stats(registry: QueueRegistry, tenant: str, queue: str | None) -> Asking[list[QueueStats]]:
    if queue is None:
        rooms = yield from registry.all(tenant)
    else:
        room = yield from registry.present(tenant, queue)
        rooms = [] if room is None else [room]
    found = []
    if rooms:
        for room, reply in zip(
            rooms, (yield [registry.write.script("select_stats", r.tag) for r in rooms]), strict=True
        ):
            now, oldest, *counts = ok(reply)
            found.append(QueueStats(tenant, room.queue, dict(zip(rows.STATES, counts, strict=True)), oldest, now))
    return found
