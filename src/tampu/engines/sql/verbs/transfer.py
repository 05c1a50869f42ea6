"""Import and export of messages: moves them between stores with state, attempts and history.

Contract of import: a call is all or nothing. A message whose id exists already in the tenant is skipped; the others
enter their indexes in order, each at the back of its rank. Idempotency keys that are in use here stay as they are.
Everything that a call looks up is locked first, as in publish.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tampu.engines.encoding import CANCELLED, CODE, DONE, EXPIRED, PARTITION, id_bytes, id_text, pack_seqs
from tampu.engines.groups import Limits, stored
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Db, Ints, Values, blob, text
from tampu.engines.sql.locks import group_lock
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.engines.sql.read import find, keys, last_cursor, load
from tampu.engines.sql.rules import idempotency_keys
from tampu.engines.sql.rules.correlations import correlate
from tampu.engines.sql.rules.groups import admit
from tampu.engines.sql.rules.indexes import hold
from tampu.engines.sql.rules.message_row import MessageRow
from tampu.engines.transfer import Import, MessageSnapshot, Request, RequestPage, SnapshotPage, StartJournal, check
from tampu.model.journal import Position
from tampu.model.message import Failure, State
from tampu.model.times import instant, moment
from tampu.model.values import pack_body

_ENDS = (DONE, CANCELLED, EXPIRED)


def locks(call: Import) -> set[bytes]:
    tenant, queue = call.tenant.encode(), call.queue.encode()
    names = {b"request/%s/%s" % (tenant, idempotency_keys.name(call.queue, request.key)) for request in call.requests}
    for item in call.items:
        names.add(b"id/%s/%s" % (tenant, item.id.encode()))
        if item.has_key and item.body.key is not None:
            names.add(b"key/%s/%s/%s" % (tenant, queue, item.body.key.encode()))
        if item.group is not None:
            names.add(group_lock((call.tenant, call.queue), item.group.encode()))
    return names


def import_messages(commit: Commit, call: Import) -> int:
    check(call)
    ids = list(dict.fromkeys(item.id for item in call.items))
    known = find(commit.db, commit.registry, call.tenant, ids) if ids else {}
    first: dict[str, MessageSnapshot] = {}
    for item in call.items:
        if item.id not in known:
            first.setdefault(item.id, item)
    items = list(first.values())
    if items:
        q, given = commit.queue(call.tenant, call.queue), commit.registry.id.given
        messages = [
            MessageRow(seq, q, item.attempts, item.created_us // 1000, id_bytes(item.id), blob(item.group), item.rank,
                 item.max_attempts, item.expires_us, item.has_key)
            for seq, item in zip(map(given, commit.numbers(len(items))), items, strict=True)
        ]  # fmt: skip
        _store(commit, call.tenant, q, items, messages)
        _write_history(commit, items, messages)
        states = _enter_indexes(commit, items, messages, Limits(stored(call.slots), call.group_rate))
        for item, message, state in zip(items, messages, states, strict=True):
            record = commit.record("adopt", q, state)
            record.own[len(record.seqs)] = id_bytes(item.id)
            record.extend([message.seq], [message.stamp], [message.attempts], [item.body.type])
            record.details.append(call.origin)
    _import_requests(commit, call)
    return len(items)


def _store(
    commit: Commit, tenant: str, q: int, items: Sequence[MessageSnapshot], messages: Sequence[MessageRow]
) -> None:
    rows = [
        (message.seq, item.created_us, item.rank, item.max_attempts, item.expires_us, id_bytes(item.id),
         blob(item.body.key), message.group, pack_body(item.body), CODE[item.state], item.attempts, item.ended_us,
         blob(item.reason))
        for item, message in zip(items, messages, strict=True)
    ]  # fmt: skip
    commit.db.send("import_messages", q, Values("iiiiiubbbiiib", rows))
    correlated = [
        (message.seq, tenant, item.body.correlation_id)
        for item, message in zip(items, messages, strict=True)
        if item.body.correlation_id is not None
    ]
    if correlated:
        correlate(commit, correlated)
    ended = [
        (CODE[item.state], item.ended_us, message.seq)
        for item, message in zip(items, messages, strict=True)
        if CODE[item.state] in _ENDS
    ]
    together = [
        (code, at, pack_seqs([seq for _, _, seq in same]))
        for (code, at), same in itertools.groupby(ended, lambda end: end[:2])
    ]
    if together:
        commit.db.send("import_endings", q, Values("iib", together))
    waiting = [
        (message.seq, item.expires_us, blob(item.body.key) if item.has_key else None)
        for item, message in zip(items, messages, strict=True)
        if item.ended_us is None and (item.expires_us is not None or item.has_key)
    ]
    if waiting:
        commit.db.send("import_keys_and_expiries", q, Values("iib", waiting))
        for _, expires, _ in waiting:
            if expires is not None:
                commit.falls_due(expires)


def _write_history(commit: Commit, items: Sequence[MessageSnapshot], messages: Sequence[MessageRow]) -> None:
    pairs = list(zip(items, messages, strict=True))
    failed = [
        (message.seq, instant(f.at, "at"), f.attempt, f.outcome.encode(), blob(f.worker), blob(f.error),
         blob(f.traceback))
        for item, message in pairs
        for f in item.failures
    ]  # fmt: skip
    if failed:
        commit.db.send("import_failures", Values("iiibbbb", failed))
    results = [(message.seq, item.result_until_us, item.result) for item, message in pairs if item.result is not None]
    if results:
        commit.db.send("upsert_results", Values("iib", results))


def _enter_indexes(
    commit: Commit, items: Sequence[MessageSnapshot], messages: Sequence[MessageRow], limits: Limits
) -> list[int]:
    """Put messages into their indexes; returns their states."""
    pairs = list(zip(items, messages, strict=True))
    states = {message.seq: CODE[item.state] for item, message in pairs}
    for item, message in pairs:
        if item.ended_us is not None:
            commit.count(message.q, states[message.seq], 1)
    by_hand = [(item, message) for item, message in pairs if item.state is State.HELD and not item.waits_turn]
    hold(commit, [(message, item.run_us, None, None, (item.reason or "").encode()) for item, message in by_hand])
    held = {message.seq for _, message in by_hand}
    going = [
        (message, item.run_us, None) for item, message in pairs if item.ended_us is None and message.seq not in held
    ]
    states.update(zip([message.seq for message, _, _ in going], admit(commit, going, limits), strict=True))
    return [states[message.seq] for message in messages]


def _import_requests(commit: Commit, call: Import) -> None:
    requests = list({request.key: request for request in call.requests}.values())
    if not requests:
        return
    known = find(commit.db, commit.registry, call.tenant, list({request.id for request in requests}))
    rows = []
    for request, unused in zip(requests, commit.numbers(len(requests)), strict=True):
        # A message that no longer exists has any unused number.
        seq, _ = known.get(request.id) or (commit.registry.id.given(unused), None)
        name = idempotency_keys.name(call.queue, request.key)
        rows.append((name, seq, commit.stamp, request.until_us, id_bytes(request.id), request.digest))
    scope = idempotency_keys.scope(call.tenant)
    commit.db.send("import_idempotency_keys", scope, commit.now, Values("biiiub", rows))


def start_journal(commit: Commit, call: StartJournal) -> Position:
    offset = call.after.get(PARTITION, 0)
    commit.db.row("lock_journal")
    begun = commit.db.row("start_journal", offset) if offset else None
    return {} if begun is None else {PARTITION: offset}


# -- export


def page(
    db: Db,
    registry: QueueRegistry,
    tenant: str,
    queue: str,
    state: State,
    after: tuple[Any, ...] | None,
    limit: int,
    now: int | None,
) -> SnapshotPage | None:
    q = registry.number(db, tenant, queue)
    if q is None:
        return None
    found = keys(db, q, CODE[state], after, limit)
    seqs = [seq for seq, _ in found]
    more = {seq: rest for seq, *rest in db.rows("select_for_export", Ints(seqs), now)}
    failures: dict[int, list[Failure]] = {}
    for seq, attempt, at, outcome, worker, error, trace in db.rows("select_failures_for_export", Ints(seqs)):
        failed = Failure(attempt, moment(at), outcome, text(worker), text(error), text(trace))
        failures.setdefault(seq, []).append(failed)
    items = []
    for seq, m in load(db, registry, seqs).items():
        rank, group, waits, has_key, result, until = more[seq]
        items.append(
            MessageSnapshot(
                m.id, m.state, m.body, rank, m.attempts, m.max_attempts, m.created_us, m.run_us, m.expires_us,
                m.ended_us, m.reason, text(group), bool(waits), bool(has_key), m.cancel_requested,
                tuple(failures.get(seq, ())), result, until,
            )
        )  # fmt: skip
    return SnapshotPage(items, last_cursor(found, limit))


def requests(
    db: Db, registry: QueueRegistry, tenant: str, after: tuple[Any, ...] | None, limit: int, now: int | None
) -> RequestPage:
    (last,) = after or ("",)
    rows = db.rows("page_idempotency_keys", idempotency_keys.scope(tenant), last.encode(), now, limit)
    items = []
    for stored_key, digest, until, seq, stamp, own, holds in rows:
        if holds:
            queue, key = idempotency_keys.parse(stored_key)
            id = registry.id.of(stamp, seq) if own is None else id_text(own)
            items.append(Request(key, digest, until, id, queue))
    if len(rows) < limit:
        return RequestPage(items, None)
    end, *_ = rows[-1]
    return RequestPage(items, (end.decode(),))
