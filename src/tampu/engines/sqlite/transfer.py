"""adopt: store messages that another store has kept, as they are; and what this one gives of itself to another.

Contract of adopt: a call is all or nothing. A message whose id the tenant has already is left out; the others enter
their indexes in their order, each at the back of its rank. Idempotency keys that are in use here stay as they are.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Sequence
from typing import Any

from tampu.engines.encoding import CODE, DEAD, HELD, pack_seqs
from tampu.engines.journal_pages import PARTITION
from tampu.engines.sqlite import ids
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.groups import admit, set_limits
from tampu.engines.sqlite.indexes import hold
from tampu.engines.sqlite.queue_registry import QueueRegistry
from tampu.engines.sqlite.read import keys, load
from tampu.engines.transfer import Import, MessageSnapshot, Request, RequestPage, SnapshotPage, StartJournal, check
from tampu.model.errors import TampuError
from tampu.model.journal import Position
from tampu.model.message import State
from tampu.model.times import instant
from tampu.model.values import pack_body

_INSERT = "INSERT INTO tampu_message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_FAILED = "INSERT INTO tampu_failure VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_REMEMBER = (
    "INSERT INTO tampu_idempotency VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, key) DO UPDATE SET"
    " seq = excluded.seq, id = excluded.id, digest = excluded.digest, until = excluded.until WHERE until <= ?"
)


def import_messages(commit: Commit, calls: Sequence[Import]) -> list[int | TampuError]:
    replies: list[int | TampuError] = []
    for call in calls:
        try:
            check(call)
            replies.append(_import_messages(commit, call))
        except TampuError as error:
            replies.append(error)
    return replies


def _import_messages(commit: Commit, call: Import) -> int:
    stored = 0
    ends: list[tuple[int, int, int]] = []
    for item in call.items:
        if commit.find(call.tenant, item.id) is not None:
            continue
        q = commit.queue(call.tenant, call.queue)
        if item.group is not None:
            set_limits(commit, q, call.slots, call.group_rate)
        seq = commit.numbers(1)[0] + 1
        own = ids.id_bytes(item.id)
        commit.db.execute(
            _INSERT,
            (
                seq,
                q,
                item.rank,
                item.created_us,
                item.max_attempts,
                item.expires_us,
                item.body.key,
                item.group,
                own,
                pack_body(item.body),
            ),
        )
        _keep_history(commit, seq, item)
        code = _place(commit, q, seq, item, ends)
        record = commit.record("adopt", q, code)
        record.extend([seq], [item.attempts], [item.body.type])
        record.details.append(call.origin)
        record.ids[seq] = item.id
        stored += 1
    for (code, at), rows in itertools.groupby(ends, lambda end: end[:2]):
        seqs = [seq for _, _, seq in rows]
        commit.db.execute(
            "INSERT INTO tampu_ending VALUES (?, ?, ?, ?, ?)",
            (commit.queue(call.tenant, call.queue), code, commit.numbers(1)[0], at, pack_seqs(seqs)),
        )
    for request in call.requests:
        _remember(commit, call.tenant, request)
    return stored


def _keep_history(commit: Commit, seq: int, item: MessageSnapshot) -> None:
    for no, f in enumerate(item.failures, 1):
        commit.db.execute(_FAILED, (seq, no, f.attempt, instant(f.at, "at"), f.outcome, f.worker, f.error, f.traceback))
    if item.result is not None:
        commit.db.execute("INSERT INTO tampu_result VALUES (?, ?, ?)", (seq, item.result_until_us, item.result))


def _place(commit: Commit, q: int, seq: int, item: MessageSnapshot, ends: list[tuple[int, int, int]]) -> int:
    """Into its index; the state it is in then."""
    code, db = CODE[item.state], commit.db
    if item.ended_us is not None:
        if code == DEAD:
            row = (seq, q, item.ended_us, item.reason, item.attempts, None)
            db.execute("INSERT INTO tampu_dead VALUES (?, ?, ?, ?, ?, ?)", row)
        else:
            ended = (seq, q, code, item.ended_us, item.attempts, None)
            db.execute("INSERT INTO tampu_ended VALUES (?, ?, ?, ?, ?, ?)", ended)
            ends.append((code, item.ended_us, seq))
        commit.count(q, code, 1)
        return code
    if item.expires_us is not None:
        db.execute("INSERT OR IGNORE INTO tampu_expiry VALUES (?, ?)", (item.expires_us, seq))
        commit.falls_due(item.expires_us)
    if item.has_key:
        db.execute("INSERT OR IGNORE INTO tampu_key VALUES (?, ?, ?)", (q, item.body.key, seq))
    if code == HELD and not item.waits_turn:
        hold(commit, seq, q, None, item.reason or "", item.run_us, item.attempts)
        return HELD
    return admit(commit, seq, q, item.rank, item.run_us, item.attempts, item.group)


def _remember(commit: Commit, tenant: str, request: Request) -> None:
    place = commit.find(tenant, request.id)
    # The number of a message that is gone: any that nobody has.
    seq = commit.numbers(1)[0] + 1 if place is None else place[0]
    own = ids.id_bytes(request.id)
    row = (tenant, request.key, seq, own, request.digest, request.until_us)
    commit.db.execute(_REMEMBER, (*row, commit.now))


def start_journal(commit: Commit, calls: Sequence[StartJournal]) -> list[Position | TampuError]:
    replies: list[Position | TampuError] = []
    for call in calls:
        offset = call.after.get(PARTITION, 0)
        set_ = bool(offset) and commit.start_journal(offset)
        replies.append({PARTITION: offset} if set_ else {})
    return replies


# -- what is given


def page(
    db: sqlite3.Connection,
    registry: QueueRegistry,
    tenant: str,
    queue: str,
    state: State,
    after: tuple[Any, ...] | None,
    limit: int,
    now: int,
) -> SnapshotPage | None:
    q = registry.number(db, tenant, queue)
    if q is None:
        return None
    found = keys(db, q, CODE[state], after, limit)
    items = [_kept(db, registry, q, seq, now) for seq, _ in found]
    return SnapshotPage(items, found[-1][1] if len(found) == limit else None)


def _kept(db: sqlite3.Connection, registry: QueueRegistry, q: int, seq: int, now: int) -> MessageSnapshot:
    message = load(db, registry, seq, whole=True, now=now)
    assert message is not None
    rank, group = db.execute("SELECT rank, lane FROM tampu_message WHERE seq = ?", (seq,)).fetchone()
    waits = has_key = False
    until = None
    if message.state is State.HELD:
        waits = db.execute("SELECT lane FROM tampu_held WHERE seq = ?", (seq,)).fetchone()[0] is not None
    if message.key is not None:
        holder = db.execute("SELECT seq FROM tampu_key WHERE q = ? AND key = ?", (q, message.key)).fetchone()
        has_key = holder is not None and holder[0] == seq
    if message.result_raw is not None:
        (until,) = db.execute("SELECT until FROM tampu_result WHERE seq = ?", (seq,)).fetchone()
    return MessageSnapshot(
        message.id, message.state, message.body, rank, message.attempts, message.max_attempts, message.created_us,
        message.run_us, message.expires_us, message.ended_us, message.reason, group, waits, has_key,
        message.cancel_requested, message.failures, message.result_raw, until,
    )  # fmt: skip


def requests(
    db: sqlite3.Connection, registry: QueueRegistry, tenant: str, after: tuple[Any, ...] | None, limit: int, now: int
) -> RequestPage:
    rows = db.execute(
        "SELECT i.key, i.digest, i.until, i.seq, i.id, m.q FROM tampu_idempotency i"
        " LEFT JOIN tampu_message m ON m.seq = i.seq"
        " WHERE i.tenant = ? AND i.key > ? ORDER BY i.key LIMIT ?",
        (tenant, after[0] if after else "", limit),
    ).fetchall()
    items = []
    for key, digest, until, seq, own, q in rows:
        if until > now:
            id = ids.id_text(own) if own else registry.id.of(seq)
            items.append(Request(key, digest, until, id, None if q is None else registry.name(db, q)[1]))
    return RequestPage(items, (rows[-1][0],) if len(rows) == limit else None)
