"""Import messages of another store as they are, and export the messages of this one.

Contract of import: a call is all or nothing, in one script of its queue. A message whose id the tenant has already, in
any of its queues, is left out. Ids are reserved in the tenant first, as for publish.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from tampu.engines import groups
from tampu.engines.port import Item
from tampu.engines.redis import rows
from tampu.engines.redis.connection.script_calls import Operation, ok
from tampu.engines.redis.queue_registry import QueueEntry, QueueRegistry, RunContext
from tampu.engines.redis.read import cursor_after, cursor_of
from tampu.engines.redis.verbs import reservations
from tampu.engines.rules import correlation_word
from tampu.engines.transfer import Import, MessageSnapshot, Request, RequestPage, SnapshotPage, StartJournal, check
from tampu.model.journal import Position
from tampu.model.message import Body, Failure, State
from tampu.model.times import instant
from tampu.model.values import pack_body

_NOTHING = Body("", b"")


def import_messages(context: RunContext, call: Import) -> Operation[int]:
    check(call)
    entry = yield from context.registry.register(call.tenant, call.queue)
    items = [_item(call.tenant, item) for item in call.items]
    requests = [_request(entry, request) for request in call.requests]
    names = reservations.Reservations(context, entry, [Item(_NOTHING, b"", 0, id=item.id) for item in call.items])
    here = yield from _stored_here(context, call)
    parts = [part for item in call.items for part in (pack_body(item.body), _failures(item.failures), _result(item))]
    while True:
        yield from names.reserve(items, leave_taken=True)
        for item in items:
            if item["o"] in here:
                item["f"] = 2
        (reply,) = yield [
            context.write.script(
                "import_messages",
                entry.tag,
                call.origin,
                rows.encode(items),
                rows.encode(requests),
                groups.stored(call.slots),
                *rows.group_rate(call.group_rate),
                *parts,
            )
        ]
        new, stored, *void = context.read_reply(entry, reply)
        if stored == b"void":
            names.lose(void)
            continue
        if new:
            yield from context.registry.confirm(entry)
        return int(stored)


def _stored_here(context: RunContext, call: Import) -> Operation[set[str]]:
    """The ids that this store made itself, and whose messages it has."""
    made = yield from context.registry.by_ids([item.id for item in call.items])
    found = [(id, entry, number) for id, (entry, number) in made.items() if entry.tenant == call.tenant]
    if not found:
        return set()
    replies = yield [context.write.script("get_message", entry.tag, number) for _, entry, number in found]
    return {id for (id, _, _), reply in zip(found, replies, strict=True) if ok(reply) is not None}


def _item(tenant: str, item: MessageSnapshot) -> dict[str, Any]:
    """A message as `import_messages.lua` takes it, without fields that are not set."""
    body = item.body
    made: dict[str, Any] = {
        "o": item.id, "s": rows.CODE[item.state], "t": body.type, "n": item.attempts, "a": item.max_attempts,
        "r": rows.rank_text(item.rank), "c": item.created_us,
    }  # fmt: skip
    for name, value in (
        ("u", item.run_us), ("e", item.expires_us), ("z", item.ended_us), ("y", item.reason), ("l", item.group),
        ("w", item.waits_turn or None), ("k", body.key), ("hk", item.has_key or None), ("p", rows.kept_fields(body)),
        ("ru", item.result_until_us), ("le", item.failures[-1].error if item.failures else None),
    ):  # fmt: skip
        if value is not None:
            made[name] = value
    if body.correlation_id is not None:
        made["h"] = correlation_word(tenant, body.correlation_id).hex()
    return made


def _request(entry: QueueEntry, request: Request) -> dict[str, Any]:
    made = {"i": request.key, "id": request.digest.hex(), "iw": request.until_us, "o": request.id}
    number = entry.ids.number(request.id)
    if number is not None:
        made["n"] = number
    return made


def _failures(failures: Sequence[Failure]) -> bytes:
    if not failures:
        return b""
    packed = [
        rows.encode((f.attempt, instant(f.at, "at"), f.outcome, f.worker or "", f.error or False, f.traceback or False))
        for f in failures
    ]
    return b"\xdd" + struct.pack(">I", len(packed)) + b"".join(packed)


def _result(item: MessageSnapshot) -> bytes:
    return b"" if item.result is None else b"%016d" % (item.result_until_us or 0) + item.result


def start_journal(context: RunContext, call: StartJournal) -> Operation[Position]:
    """Set the first offset of each queue's partition, unless it has one."""
    begun: Position = {}
    for partition, offset in call.after.items():
        tenant, slash, queue = partition.partition("/")
        if slash and offset:
            entry = yield from context.registry.register(tenant, queue)
            (reply,) = yield [context.write.plain("HSETNX", entry.tag, "n", "end", offset)]
            if ok(reply):
                begun[partition] = offset
    return begun


# -- export


def page(
    registry: QueueRegistry, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
) -> Operation[SnapshotPage | None]:
    entry = yield from registry.find_existing(tenant, queue)
    if entry is None:
        return None
    (reply,) = yield [
        registry.write.script("page_for_export", entry.tag, str(state), limit, *cursor_after(state, after))
    ]
    now, *flat = ok(reply)
    items = [_snapshot(entry, now, *flat[i : i + 7]) for i in range(0, len(flat), 7)]
    return SnapshotPage(items, cursor_of(state, flat[-7], flat[-6]) if len(items) == limit else None)


def _snapshot(
    entry: QueueEntry, now: int, member: bytes, score: bytes, raw: bytes, place: bytes | None, failed: bytes | None,
    result: bytes | None, has_key: int,
) -> MessageSnapshot:  # fmt: skip
    del score
    row = rows.read_row(raw)
    failures = rows.failures(failed)
    m = rows.message(entry, member[-16:].decode(), raw, place, None, failures, rows.result(result, now))
    until = int(result[:16]) if result is not None and m.result_raw is not None else None
    return MessageSnapshot(
        m.id, m.state, m.body, rows.rank_number(row.rank), m.attempts, m.max_attempts, m.created_us, m.run_us,
        m.expires_us, m.ended_us, m.reason, (row.extra or {}).get("l"), rows.read_status(place).waits_for_group,
        bool(has_key), m.cancel_requested, failures, m.result_raw, until,
    )  # fmt: skip


def requests(registry: QueueRegistry, tenant: str, after: tuple[Any, ...] | None, limit: int) -> Operation[RequestPage]:
    """Idempotency keys, queue by queue. The cursor is the queue and a scan cursor in its keys."""
    queue, cursor = after or ("", 0)
    entries = yield from registry.all(tenant)
    for at, entry in enumerate(entries):
        if entry.queue < queue:
            continue
        (reply,) = yield [
            registry.write.script(
                "page_idempotency_keys", entry.tag, cursor if entry.queue == queue else 0, min(limit, 1000)
            )
        ]
        more, *flat = ok(reply)
        items = [
            Request(key.decode(), bytes.fromhex(digest.decode()), until, own.decode() or entry.ids.of(number.decode()),
                    entry.queue)
            for key, until, digest, number, own in zip(*(flat[i::5] for i in range(5)), strict=True)
        ]  # fmt: skip
        if int(more):
            return RequestPage(items, (entry.queue, int(more)))
        if items or at + 1 == len(entries):
            return RequestPage(items, (entries[at + 1].queue, 0) if at + 1 < len(entries) else None)
    return RequestPage([], None)
