"""claim: lease the first messages of the ready index.

Contract: attempts + 1; a receipt that cannot repeat (63 random bits per claim); never more than the limit, the queue's
max_in_flight and its rate allow; never a message past its expiry. The cost does not depend on how much else waits.

The claimed messages are a prefix of the index. So one INSERT … SELECT and one range DELETE move a batch of any size.
The rest of a run that was split stays in the index.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from tampu.engines.encoding import LEASED, READY, pack_seqs
from tampu.engines.port import AGAIN, Again, Claim, QueueClaim, RetryLater
from tampu.engines.rules import SWEEP_FIRST, next_token, nothing
from tampu.engines.sqlite import ready
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.finish import expire
from tampu.engines.sqlite.group_rates import spend
from tampu.engines.sqlite.indexes import drop_marks
from tampu.engines.sqlite.read import last_errors
from tampu.engines.sqlite.sweep import sweep_due
from tampu.model.errors import TampuError
from tampu.model.message import Lease, Message, State, unpack_body

# Inside a run SQLite walks the sequence numbers upwards. With m.seq in ORDER BY it would sort.
SELECT = (
    "SELECT m.seq, r.attempts, m.created, m.max_attempts, m.expires, m.key, m.id, m.body"
    " FROM tampu_ready r CROSS JOIN tampu_message m ON m.seq BETWEEN r.seq AND r.last"
    " WHERE r.q = ? ORDER BY r.rank, r.pos LIMIT ?"
)
LEASE = (
    "INSERT INTO tampu_leased SELECT m.seq, r.q, ?, ?, r.attempts + 1, ?, 0"
    " FROM tampu_ready r CROSS JOIN tampu_message m ON m.seq BETWEEN r.seq AND r.last"
    " WHERE r.q = ? ORDER BY r.rank, r.pos LIMIT ?"
)
_MOST_EXPIRED = 1000


def claim(commit: Commit, calls: Sequence[Claim]) -> list[list[Lease] | RetryLater | Again | TampuError]:
    _, more = sweep_due(commit, SWEEP_FIRST)
    replies: list[list[Lease] | RetryLater | Again | TampuError] = []
    for call in calls:
        leases: list[Lease] = []
        waits: list[int] = []
        for want in call.wants:
            if len(leases) >= call.limit:
                break
            q = commit.registry.number(commit.db, call.tenant, want.queue)
            if q is not None:
                leases.extend(_take(commit, call, want, q, call.limit - len(leases), waits))
        replies.append(AGAIN if not leases and more else leases or nothing(waits))
    return replies


def _take(commit: Commit, call: Claim, want: QueueClaim, q: int, limit: int, waits: list[int]) -> list[Lease]:
    db, now = commit.db, commit.now
    limit, tokens = _allowed(commit, want, q, limit)
    if want.rate and tokens < 1:
        waits.append(next_token(want, tokens))
    if limit <= 0:
        return []
    rows = _first(commit, q, limit)
    if not rows:
        return []
    seqs = [seq for seq, _, _, _, _, _, _, _ in rows]
    lease = secrets.randbits(63)
    until = now + want.lease_us
    db.execute(LEASE, (lease, until, call.worker, q, len(rows)))
    ready.take_first(db, q, seqs[-1])
    db.execute("INSERT INTO tampu_claim VALUES (?, ?, ?)", (until, lease, pack_seqs(seqs)))
    marked = [seq for seq, _, _, _, expires, key, _, _ in rows if expires is not None or key is not None]
    if marked:
        drop_marks(commit, marked)
    commit.count(q, READY, -len(rows))
    commit.count(q, LEASED, len(rows))
    commit.falls_due(until)
    tries = [attempts + 1 for _, attempts, _, _, _, _, _, _ in rows]
    commit.record("claim", q, LEASED, call.worker).extend(seqs, tries)
    if want.rate:
        db.execute("UPDATE tampu_queue SET tokens = ?, tokens_at = ? WHERE q = ?", (tokens - len(rows), now, q))
    if want.has_group_rate:
        spend(commit, q, seqs)
    retried = [seq for seq, attempts, _, _, _, _, _, _ in rows if attempts]
    errors = last_errors(db, retried) if retried else {}
    return _leases(commit, call, want.queue, rows, lease, until, errors)


def _leases(
    commit: Commit, call: Claim, queue: str, rows: list[Any], lease: int, until: int, errors: dict[int, str | None]
) -> list[Lease]:
    tenant, worker, leased = call.tenant, call.worker, State.LEASED
    commit.know_ids((seq, own) for seq, _, _, _, _, _, own, _ in rows if seq & 1)
    made = commit.registry.id.many(seq for seq, _, _, _, _, _, _, _ in rows)
    start, end = f"{queue}/", f".{lease:x}"
    leases = [
        Lease(
            Message(
                commit.id(seq) if seq & 1 else id,
                tenant,
                queue,
                leased,
                unpack_body(body),
                attempts + 1,
                max_attempts,
                created,
                None,
                expires,
            ),
            f"{start}{seq:x}{end}",
            until,
            worker,
        )
        for id, (seq, attempts, created, max_attempts, expires, _, _, body) in zip(made, rows, strict=True)
    ]
    if errors:
        for i, (seq, *_) in enumerate(rows):
            if seq in errors:
                message = msgspec.structs.replace(leases[i].message, last_error=errors[seq])
                leases[i] = msgspec.structs.replace(leases[i], message=message)
    return leases


def _first(commit: Commit, q: int, limit: int) -> list[Any]:
    """The first rows of the index. Messages past their expiry that were not swept yet expire here, a bounded number."""
    expired = 0
    while True:
        rows = commit.db.execute(SELECT, (q, limit)).fetchall()
        late = {
            seq: attempts
            for seq, attempts, _, _, expires, _, _, _ in rows
            if expires is not None and expires <= commit.now
        }
        if not late:
            return rows
        if expired >= _MOST_EXPIRED:
            return []
        for seq in late:
            ready.take(commit.db, q, seq)
        commit.count(q, READY, -len(late))
        drop_marks(commit, list(late))
        expire(commit, q, list(late.items()))
        commit.begin_record_group()  # the next record must not join one of an earlier claim
        expired += len(late)


def _allowed(commit: Commit, want: QueueClaim, q: int, limit: int) -> tuple[int, float]:
    """The limit after max_in_flight and the claim rate, and the tokens the rate has now.

    Nothing is written, unless the clock went back: a claim that finds nothing must not cost a commit.
    """
    tokens = 0.0
    if want.max_in_flight:
        limit = min(limit, want.max_in_flight - commit.tally(q)[LEASED])
    if want.rate:
        burst = want.burst or max(1, math.ceil(want.rate))
        tokens, at = commit.db.execute("SELECT tokens, tokens_at FROM tampu_queue WHERE q = ?", (q,)).fetchone()
        if at is not None and at > commit.now:  # the clock was ahead: do not wait until then
            commit.db.execute("UPDATE tampu_queue SET tokens_at = ? WHERE q = ?", (commit.now, q))
            at = commit.now
        tokens = burst if at is None else min(burst, tokens + (commit.now - at) * want.rate / 1_000_000)
        limit = min(limit, int(tokens + 1e-9))
    return limit, tokens
