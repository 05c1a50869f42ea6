"""claim: lease the first messages of the ready index.

Contract: attempts + 1; a receipt that never repeats (63 random bits per claim); never more than limit, max_in_flight
and the queue's rate allow; never a message past its expiry. The cost does not depend on the backlog. Claims of several
processes skip each other's rows; they wait for each other only in queues with max_in_flight or a rate.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tampu.engines.encoding import LEASED, READY, id_text
from tampu.engines.port import AGAIN, Again, Claim, QueueClaim, RetryLater
from tampu.engines.rules import SWEEP_FIRST, next_token, nothing
from tampu.engines.sql.commit import Commit, SentTooEarly
from tampu.engines.sql.db import Db, Ints, blob, text
from tampu.engines.sql.locks import queue_lock
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.engines.sql.rules.group_rates import spend
from tampu.engines.sql.rules.indexes import drop_marks
from tampu.engines.sql.rules.message_row import MessageRow
from tampu.engines.sql.rules.moves import expiry_moves, write_moves
from tampu.engines.sql.verbs.sweep import sweep_due
from tampu.model.errors import TampuError
from tampu.model.message import Lease, Message, State, unpack_body

SOON = 20_000
"""Microseconds. If something is due within this time, the next claim sweeps first instead of being sent ahead."""
_MOST_EXPIRED = 1000
"""Expired messages that one claim skips at most, for each queue."""
Row = tuple[Any, ...]
"""A row of `claim_ready`: seq, attempts before, created, stamp, max_attempts, expires, has a key, id, group, body"""
EXPIRES = 5
"""Index of the expiry in a `Row`. Read for every row; unpacking the whole row would cost more."""


class Sent(NamedTuple):
    """A claim that was sent in the same round trip as the beginning of the commit."""

    lease: int
    rows: Callable[[], list[Row]]


def send_ahead(db: Db, registry: QueueRegistry, call: Claim, now: int | None) -> Sent | None:
    """Send the only claim of a run ahead, if its queue has no limits and probably nothing must be swept first."""
    if len(call.wants) != 1 or registry.expects_due:
        return None
    want = call.wants[0]
    q = registry.numbers.get((call.tenant, want.queue))
    if q is None or want.max_in_flight or want.rate or want.has_group_rate:
        return None
    lease = secrets.randbits(63)
    return Sent(lease, db.ahead("claim_ready", q, call.limit, lease, want.lease_us, blob(call.worker), now))


def claim(commit: Commit, calls: Sequence[Claim]) -> list[list[Lease] | RetryLater | Again | TampuError]:
    due = min((at for at in commit.next if at is not None), default=None)
    commit.registry.expects_due = due is not None and due <= commit.now + SOON
    if commit.sent is not None and due is not None and due <= commit.now:
        raise SentTooEarly  # due messages may come first: start again, and sweep before the claim
    # Before the sweep, because waiting for these locks must not block other sweepers.
    commit.locks.take(
        queue_lock(call.tenant, want.queue) for call in calls for want in call.wants if want.max_in_flight or want.rate
    )
    swept = sweep_due(commit, SWEEP_FIRST)
    replies: list[list[Lease] | RetryLater | Again | TampuError] = []
    for call in calls:
        leases: list[Lease] = []
        waits: list[int] = []
        taken = 0
        for want in call.wants:
            if taken >= call.limit:
                break
            q = commit.registry.number(commit.db, call.tenant, want.queue)
            if q is not None:
                taken += _take(commit, call, want, q, call.limit - taken, leases, waits)
        replies.append(leases if taken else AGAIN if swept.more else nothing(waits))
    return replies


def _take(
    commit: Commit, call: Claim, want: QueueClaim, q: int, limit: int, leases: list[Lease], waits: list[int]
) -> int:
    """Claim messages of one queue; returns how many. ``leases`` is filled while the server commits."""
    now = commit.now
    limit, tokens = _allowed(commit, want, q, limit)
    if want.rate and tokens < 1:
        waits.append(next_token(want, tokens))
    if limit <= 0:
        return 0
    lease = secrets.randbits(63) if commit.sent is None else commit.sent.lease
    until = now + want.lease_us
    rows = _first(commit, q, limit, lease, want.lease_us, call.worker)
    if not rows:
        return 0
    seqs, attempts, created, stamps, most, expires, named, owns, groups, bodies, *_ = zip(*rows, strict=True)
    commit.add_claim(until, lease, seqs)
    commit.count(q, READY, -len(rows))
    commit.count(q, LEASED, len(rows))
    record = commit.record("claim", q, LEASED, call.worker)
    if any(owns):
        record.own.update({i: own for i, own in enumerate(owns, len(record.seqs)) if own is not None})
    record.extend(seqs, stamps, [before + 1 for before in attempts])
    if want.rate:
        commit.db.send("spend_tokens", q, float(tokens - len(rows)), now)
    if want.has_group_rate:
        spend(commit, q, list(zip(groups, seqs, strict=True)))
    if any(named) or any(expires):
        fresh = _fresh_bodies(commit, seqs, expires, named)
        bodies = tuple(fresh.get(seq, body) for seq, body in zip(seqs, bodies, strict=True))
    retried = [seq for seq, before in zip(seqs, attempts, strict=True) if before] if any(attempts) else []
    errors = dict(commit.db.rows("select_last_errors", Ints(retried))) if retried else {}

    def fill() -> None:
        ids = ids_of(commit, stamps, seqs, owns)
        leases.extend(
            leases_of(call, want.queue, lease, until, (ids, seqs, attempts, created, most, expires, bodies), errors)
        )

    commit.deferred.append(fill)
    return len(rows)


def _fresh_bodies(
    commit: Commit, seqs: Sequence[int], expires: Sequence[int | None], named: Sequence[bool]
) -> dict[int, bytes]:
    """Delete keys and expiries. This waits for publishes that replace a payload, so read the payloads afterwards."""
    marks = list(zip(seqs, expires, named, strict=True))
    drop_marks(commit, [seq for seq, at, has_key in marks if at is not None or has_key])
    keyed = [seq for seq, _, has_key in marks if has_key]
    return dict(commit.db.rows("select_bodies", Ints(keyed))) if keyed else {}


def ids_of(commit: Commit, stamps: Sequence[int], seqs: Sequence[int], owns: Sequence[bytes | None]) -> Sequence[str]:
    ids = commit.registry.id.many(stamps, seqs)
    return [id if own is None else id_text(own) for id, own in zip(ids, owns, strict=True)] if any(owns) else ids


def leases_of(
    call: Claim,
    queue: str,
    lease: int,
    until: int,
    columns: tuple[Sequence[Any], ...],
    errors: Mapping[int, bytes | None],
) -> list[Lease]:
    """``columns``: id, seq, attempts before, created, max_attempts, expires, body"""
    tenant, worker, leased = call.tenant, call.worker, State.LEASED
    start, end = f"{queue}/", f".{lease:x}"
    leases = [
        Lease(
            Message(id, tenant, queue, leased, unpack_body(body), before + 1, max_attempts, created, None, expires),
            f"{start}{seq:x}{end}",
            until,
            worker,
        )
        for id, seq, before, created, max_attempts, expires, body in zip(*columns, strict=True)
    ]
    if errors:
        _, seqs, *_ = columns
        for i, seq in enumerate(seqs):
            if seq in errors:
                message = msgspec.structs.replace(leases[i].message, last_error=text(errors[seq]))
                leases[i] = msgspec.structs.replace(leases[i], message=message)
    return leases


def _first(commit: Commit, q: int, limit: int, lease: int, lease_us: int, worker: str | None) -> list[Row]:
    """Take the head of the index. Messages past their expiry are expired here, and the next ones are taken instead."""
    taken: list[Row] = []
    expired = 0
    while expired < _MOST_EXPIRED:
        if commit.sent is None:
            rows = commit.db.rows("claim_ready", q, limit - len(taken), lease, lease_us, blob(worker), commit.now)
        else:
            rows, commit.sent = commit.sent.rows(), None
        over = [row for row in rows if row[EXPIRES] is not None and row[EXPIRES] <= commit.now]
        if not over:
            return taken + rows
        late = [
            MessageRow(seq, q, attempts, stamp, own, group, 0, max_attempts, expires, named)
            for seq, attempts, _, stamp, max_attempts, expires, named, own, group, *_ in over
        ]
        taken += [row for row in rows if row[EXPIRES] is None or row[EXPIRES] > commit.now]
        commit.count(q, READY, -len(late))
        drop_marks(commit, [message.seq for message in late])
        write_moves(commit, expiry_moves(commit, late))
        commit.begin_record_group()  # the next claim record must not join an earlier one
        expired += len(late)
    return taken


def _allowed(commit: Commit, want: QueueClaim, q: int, limit: int) -> tuple[int, float]:
    """(limit after max_in_flight and rate, tokens of the rate).

    Writes nothing unless the clock went back: a claim that finds nothing must not cost a write.
    """
    tokens = 0.0
    if want.max_in_flight:
        limit = min(limit, want.max_in_flight - commit.counts_by_state(q)[LEASED])
    if want.rate:
        burst = want.burst or max(1, math.ceil(want.rate))
        tokens, at = commit.db.row("select_tokens", q)
        if at is not None and at > commit.now:  # written by a clock that was ahead: do not block the rate until then
            commit.db.send("spend_tokens", q, float(tokens), commit.now)
            at = commit.now
        tokens = float(burst) if at is None else min(burst, tokens + (commit.now - at) * want.rate / 1_000_000)
        limit = min(limit, int(tokens + 1e-9))
    return limit, tokens
