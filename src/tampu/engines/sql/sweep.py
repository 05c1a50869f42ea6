"""sweep: what time alone brings about. Promote what is due, reap leases that ran out, expire what is past its time.

Contract: at most ``limit`` of each per commit; a message is moved once, whoever sweeps. Claim does it first too, so
nobody waits for a keeper. One commit sweeps at a time; the others go on without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tampu.engines.codes import CANCELLED, DEAD, DELAYED, EXPIRED, LEASED, READY
from tampu.engines.port import Sweep, Swept
from tampu.engines.sql.card import Card
from tampu.engines.sql.commit import Commit, unpack_claim
from tampu.engines.sql.db import Ints, text
from tampu.engines.sql.ending import Failed, bury, end, write_failures
from tampu.engines.sql.lanes import admit
from tampu.engines.sql.pacing import coming_back
from tampu.engines.sql.waiting import enter_delayed, enter_ready, restore_marks, withdraw
from tampu.model.errors import TampuError

_CLAIMS = 50
"""Claims that are looked at together; each may be of thousands."""


def sweep(commit: Commit, calls: Sequence[Sweep]) -> list[Swept | TampuError]:
    moved = sweep_due(commit, max(call.limit for call in calls))
    times = [at for at in commit.db.row("due") if at is not None]
    return [Swept(moved, min(times, default=None))] * len(calls)


def sweep_due(commit: Commit, limit: int) -> int:
    delays, leases, ends = commit.next
    now = commit.now
    if not any(at is not None and at <= now for at in (delays, leases, ends)) or not commit.db.row("sweeping")[0]:
        return 0
    moved = 0
    if ends is not None and ends <= now:
        moved += _expire(commit, limit)
    if leases is not None and leases <= now:
        moved += _reap(commit, limit)
    if delays is not None and delays <= now:
        moved += _promote(commit, limit)
    return moved


def _promote(commit: Commit, limit: int) -> int:
    rows = commit.db.rows("promote", commit.now, limit)
    cards = [Card.of(row) for row in rows]
    commit.count_all(cards, DELAYED, -1)
    waiting = [(card, None, row[10]) for card, row in zip(cards, rows, strict=True)]
    for card, state in zip(cards, admit(commit, waiting), strict=True):
        commit.note("promote", state, card)
    return len(rows)


def _reap(commit: Commit, limit: int) -> int:
    """Claims whose time has come, until so many messages were looked at; each claim is looked at whole."""
    seen = moved = 0
    while seen < limit:
        claims = commit.db.rows("run_out", commit.now, _CLAIMS)
        # In the order of the claims and, within one, of its messages: so they come back.
        order = {
            (seq, lease): place
            for place, (seq, lease) in enumerate(
                (seq, lease) for _, lease, packed in sorted(claims) for seq in unpack_claim(packed)
            )
        }
        watched = sorted(order)
        rows = []
        if watched:
            rows = commit.db.rows("still_leased", Ints(w[0] for w in watched), Ints(w[1] for w in watched))
            rows.sort(key=lambda row: order[row[0], row[10]])
        out = [row for row in rows if row[13] <= commit.now]
        _keep_watching(commit, [row for row in rows if row[13] > commit.now])
        _return(commit, out)
        moved += len(out)
        seen += len(watched)
        if len(claims) < _CLAIMS:
            break
    return moved


def _keep_watching(commit: Commit, rows: Sequence[Any]) -> None:
    """Leases that were extended: of each claim, what is left is looked at again when the first of it may run out."""
    by_lease: dict[int, list[Any]] = {}
    for row in rows:
        by_lease.setdefault(row[10], []).append(row)
    commit.watch([(min(r[13] for r in kept), lease, [r[0] for r in kept]) for lease, kept in by_lease.items()])


def _return(commit: Commit, rows: Sequence[Any]) -> None:
    """Messages whose worker is gone: back of the queue, or dead when that was the last attempt.

    None of it is the lease's own doing, so no trace of it stays: a late settle must not be taken for a repeated one.
    """
    if not rows:
        return
    cards = [Card.of(row) for row in rows]
    commit.db.send("reap", Ints(card.seq for card in cards))
    commit.count_all(cards, LEASED, -1)
    write_failures(commit, [Failed(card, "lease_expired", row[11]) for card, row in zip(cards, rows, strict=True)])
    back, over, dead = [], [], []
    for card, row in zip(cards, rows, strict=True):
        worker = text(row[11])
        if row[12]:
            over.append(card)
            commit.note("cancel", CANCELLED, card, worker)
        elif card.attempts >= card.max_attempts:
            dead.append((card, None, "lease_expired"))
            commit.note("reap", DEAD, card, worker, "lease_expired")
        else:
            back.append((card, worker, row[14] is not None))
    times = coming_back(commit, [(card, paced) for card, _, paced in back])
    at_once = [card for (card, _, _), at in zip(back, times, strict=True) if at is None]
    later = [(card, at) for (card, _, _), at in zip(back, times, strict=True) if at is not None]
    for (card, worker, _), at in zip(back, times, strict=True):
        commit.note("reap", READY if at is None else DELAYED, card, worker)
    enter_ready(commit, at_once, [None] * len(at_once))
    enter_delayed(commit, [card for card, _ in later], [at for _, at in later], [None] * len(later))
    restore_marks(commit, (card for card, _, _ in back))
    end(commit, CANCELLED, over, [None] * len(over))
    bury(commit, dead)


def _expire(commit: Commit, limit: int) -> int:
    seqs = [row[0] for row in commit.db.rows("past", commit.now, limit)]
    found = withdraw(commit, seqs)
    cards = [found[seq] for seq in seqs if seq in found]
    for card in cards:
        commit.note("expire", EXPIRED, card)
    end(commit, EXPIRED, cards, [None] * len(cards))
    return len(cards)
