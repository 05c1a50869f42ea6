"""Operations of sweep and trim, and of every commit: locks and sequence numbers."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from tampu.engines.mariadb.ops.common import Operation, by_queue, ints, rows_with_attempts
from tampu.engines.sql.db import Blobs, Ints

if TYPE_CHECKING:
    from tampu.engines.mariadb.database import Db

LATCHES = 4096
"""Rows of `latch`, which stand for locks; row 0 is the lock of the sweep."""
LOCK_SECONDS = 10
"""How long our sessions wait for a lock."""


def _latch(name: bytes | None) -> int:
    return 1 + zlib.crc32(name or b"") % (LATCHES - 1)


def acquire_locks(db: Db, names: Blobs) -> Operation:
    answer = db.submit("acquire_locks", Ints(sorted({_latch(name) for name in names})))
    yield
    return answer.get()


def try_acquire_locks(db: Db, names: Blobs) -> Operation:
    answer = db.submit("try_acquire_locks", Ints(sorted({_latch(name) for name in names})))
    yield
    had = {n for (n,) in answer.get()}
    return [(name,) for name in names if _latch(name) in had]


def begin_sweep(db: Db) -> Operation:
    db.short_lock_timeout = True
    answer = db.submit("begin_sweep")
    yield
    return answer.get()


def end_sweep(db: Db) -> None:
    db.submit("end_sweep", LOCK_SECONDS)
    db.short_lock_timeout = False


def allocate_numbers(db: Db, blocks: int) -> Operation:
    answers = [db.submit("allocate_numbers") for _ in range(blocks)]
    yield
    return [row for one in answers for row in one.get()]


def fold_counts(db: Db, most: int) -> Operation:
    answer = db.submit("lock_counts", most)
    yield
    rows = answer.get()
    sums: dict[tuple[int, int], int] = {}
    for _, q, kind, n in rows:
        sums[q, kind] = sums.get((q, kind), 0) + n
    kept = [(q, kind, n) for (q, kind), n in sums.items() if n]
    db.submit("fold_counts", Ints(no for no, _, _, _ in rows), *ints(kept, 3))
    return []


def lock_due_delayed(db: Db, now: int, limit: int) -> Operation:
    answer = db.submit("lock_due_delayed", now, limit)
    yield
    due = sorted((run_at, seq, tuple(row)) for seq, *row, run_at in answer.get())
    return [(seq, *row) for _, seq, row in due]


def delete_past_fair_turns(db: Db, q: int, now: int, most: int) -> Operation:
    answer = db.submit("select_past_fair_turns", q, now, most)
    yield
    db.submit("delete_past_fair_turns", q, Blobs(sorted(group for (group,) in answer.get())))
    return []


def delete_reaped_claims(db: Db, untils: Ints, leases: Ints) -> None:
    db.submit("delete_settled_claims", untils, leases)


def purge_dead(db: Db, q: int, limit: int, until: int) -> Operation:
    answer = db.submit("purge_dead", q, limit, until)
    yield
    rows = answer.get()
    db.submit("revive_dead", Ints(seq for seq, _ in rows))
    return rows_with_attempts(db, rows)


def remove_dead(db: Db, seqs: Ints) -> Operation:
    out = db.submit("remove_dead", seqs)
    yield
    return rows_with_attempts(db, out.get())


def remove_ended(db: Db, seqs: Ints) -> Operation:
    out = db.submit("remove_ended", seqs)
    yield
    return rows_with_attempts(db, out.get())


def trim_results(db: Db, now: int, limit: int) -> Operation:
    answer = db.submit("trim_results", now, limit)
    yield
    rows = answer.get()
    db.submit("delete_results", Ints(seq for (seq,) in rows))
    return rows


def trim_idempotency_keys(db: Db, now: int, limit: int) -> Operation:
    answer = db.submit("trim_idempotency_keys", now, limit)
    yield
    rows = answer.get()
    by_tenant: dict[str, list[bytes]] = {}
    for tenant, word in rows:
        by_tenant.setdefault(tenant, []).append(word)
    for tenant, words in by_tenant.items():
        db.submit("delete_idempotency_keys", tenant, Blobs(words))
    return rows


def trim_group_rates(db: Db, now: int, limit: int) -> Operation:
    answer = db.submit("trim_group_rates", now, limit)
    yield
    rows = answer.get()
    for q, found in by_queue(rows).items():
        db.submit("delete_group_rates", q, Blobs(sorted(found)))
    return rows


def set_run_at(db: Db, seqs: Ints, times: Ints) -> None:
    for at, found in by_queue(zip(times, seqs, strict=True)).items():
        db.submit("set_run_at", at, Ints(found))
