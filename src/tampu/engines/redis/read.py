"""get, list, stats: read-only. Each message, page and queue is read in one script."""

from __future__ import annotations

import re
from typing import Any

from tampu.engines.port import Page, QueueStats
from tampu.engines.redis import rows
from tampu.engines.redis.connection.script_calls import Operation, ok
from tampu.engines.redis.queue_registry import QueueRegistry
from tampu.engines.redis.verbs import admin
from tampu.engines.rules import correlation_word
from tampu.model.errors import InvalidMessage
from tampu.model.message import Message, State

_MEMBER = re.compile(r"[0-9a-f]{16}(?:[0-9a-f]{16}){0,2}\Z")
_BY_MEMBER = (State.READY, State.HELD)


def get(registry: QueueRegistry, tenant: str, id: str, *, expired: bool = False) -> Operation[Message | None]:
    for way in (admin.by_id, admin.by_name):
        (placed,) = yield from way(registry, tenant, [id])
        if placed is not None:
            entry, name = placed
            (reply,) = yield [registry.write.script("get_message", entry.tag, name)]
            if ok(reply) is not None:
                seq, raw, place, failed, kept, error, now = reply
                failures = rows.failures(failed)
                return rows.message(
                    entry, seq.decode(), raw, place, error, failures, rows.result(kept, 0 if expired else now)
                )
    return None


def page(
    registry: QueueRegistry, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
) -> Operation[Page | None]:
    """Keyset pages: the cursor is a member of the index, with its time if the index is ordered by time."""
    entry = yield from registry.find_existing(tenant, queue)
    if entry is None:
        return None
    (reply,) = yield [registry.write.script("page_messages", entry.tag, str(state), limit, *cursor_after(state, after))]
    flat = ok(reply)
    messages = [
        rows.message(entry, flat[i][-16:].decode(), flat[i + 2], flat[i + 3], flat[i + 4])
        for i in range(0, len(flat), 5)
    ]
    return Page(messages, cursor_of(state, flat[-5], flat[-4]) if len(messages) == limit else None)


def correlated(registry: QueueRegistry, tenant: str, correlation_id: str, limit: int) -> Operation[list[Message]]:
    """Each queue of the tenant has its own index, in its slot: one request for each, sent together."""
    entries = yield from registry.all(tenant)
    if not entries:
        return []
    word = correlation_word(tenant, correlation_id).hex()
    found: list[Message] = []
    calls = [registry.write.script("find_correlated", entry.tag, word, limit) for entry in entries]
    for entry, reply in zip(entries, (yield calls), strict=True):
        flat = ok(reply)
        found += [rows.message(entry, flat[i].decode(), *flat[i + 1 : i + 4]) for i in range(0, len(flat), 4)]
    found.sort(key=lambda message: (message.created_us, message.id))
    return [message for message in found if message.correlation_id == correlation_id][:limit]


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
    raise InvalidMessage("after is not a cursor of this list", field="after", hint="pass the cursor of the last page")


def stats(registry: QueueRegistry, tenant: str, queue: str | None) -> Operation[list[QueueStats]]:
    if queue is None:
        entries = yield from registry.all(tenant)
    else:
        entry = yield from registry.find_existing(tenant, queue)
        entries = [] if entry is None else [entry]
    found = []
    if entries:
        for entry, reply in zip(
            entries, (yield [registry.write.script("select_stats", r.tag) for r in entries]), strict=True
        ):
            now, oldest, *counts = ok(reply)
            found.append(QueueStats(tenant, entry.queue, dict(zip(rows.STATES, counts, strict=True)), oldest, now))
    return found
