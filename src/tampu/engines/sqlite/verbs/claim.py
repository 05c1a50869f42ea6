"""claim of plain messages: those without key and expiry, in queues without limits, while nothing is due.

The claimed messages are a prefix of the ready index. So one INSERT … SELECT and one range DELETE move a batch of any
size. Everything else is claimed by `tampu.engines.sql.verbs.claim`, which takes about 1.2 times as long.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from tampu.engines.encoding import LEASED, READY
from tampu.engines.port import Again, Claim, QueueClaim, RetryLater
from tampu.engines.sql.db import Ints
from tampu.engines.sql.verbs import claim as any_claim
from tampu.engines.sqlite import ready
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.database import sql_of
from tampu.model.errors import TampuError
from tampu.model.message import Lease

_SELECT_FIRST, _LEASE_FIRST = sql_of("select_first"), sql_of("lease_first")


def claim(commit: Commit, calls: Sequence[Claim]) -> list[list[Lease] | RetryLater | Again | TampuError]:
    now = commit.now
    if any([at is not None and at <= now for at in commit.next]):  # noqa: C419 - a list is faster
        return any_claim.claim(commit, calls)
    replies: list[list[Lease] | RetryLater | Again | TampuError] = []
    for call in calls:
        leases = None
        if len(call.wants) == 1:
            want = call.wants[0]
            if not (want.max_in_flight or want.rate or want.has_group_rate):
                leases = _take(commit, call, want)
        replies.append(any_claim.claim(commit, [call])[0] if leases is None else leases)
    return replies


def _take(commit: Commit, call: Claim, want: QueueClaim) -> list[Lease] | None:
    """None: some are not plain. Nothing has changed."""
    db, now = commit.db, commit.now
    q = commit.registry.number(db, call.tenant, want.queue)
    if q is None:
        return []
    rows: list[Any] = db.execute(_SELECT_FIRST, (q, call.limit)).fetchall()
    if not rows:
        return []
    seqs, attempts, created, stamps, most, expires, named, owns, _, bodies = zip(*rows, strict=True)
    if any(named) or any(expires):
        return None
    lease, until = secrets.randbits(63), now + want.lease_us
    db.execute(_LEASE_FIRST, (lease, until, call.worker, q, len(rows), now))
    ready.take_first(db, q, seqs[-1])
    commit.add_claim(until, lease, seqs)
    commit.count(q, READY, -len(rows))
    commit.count(q, LEASED, len(rows))
    record = commit.record("claim", q, LEASED, call.worker)
    if any(owns):
        record.own.update({i: own for i, own in enumerate(owns, len(record.seqs)) if own is not None})
    record.extend(seqs, (), [before + 1 for before in attempts])
    retried = [seq for seq, before in zip(seqs, attempts, strict=True) if before] if any(attempts) else []
    errors = dict(db.rows("select_last_errors", Ints(retried))) if retried else {}
    ids = any_claim.ids_of(commit, stamps, seqs, owns)
    return any_claim.leases_of(
        call, want.queue, lease, until, (ids, seqs, attempts, created, most, expires, bodies), errors
    )
