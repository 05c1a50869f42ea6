"""Operations of sweep and trim, and of every commit: locks, sequence numbers, the final writes."""

from __future__ import annotations

import zlib

from tampu.engines.mariadb.ops.common import Rest, by_queue, ints, nothing, rows_with_attempts
from tampu.engines.mariadb.wire import Rows, Wire
from tampu.engines.sql.db import Blobs, Ints

LATCHES = 4096
"""Rows of `latch`, which stand for locks; row 0 is the lock of the sweep."""
LOCK_SECONDS = 10
"""How long our sessions wait for a lock."""


def _latch(name: bytes | None) -> int:
    return 1 + zlib.crc32(name or b"") % (LATCHES - 1)


def acquire_locks(wire: Wire, names: Blobs) -> Rest:
    return wire.ask("acquire_locks", Ints(sorted({_latch(name) for name in names.values}))).get


def try_acquire_locks(wire: Wire, names: Blobs) -> Rest:
    answer = wire.ask("try_acquire_locks", Ints(sorted({_latch(name) for name in names.values})))

    def rest() -> Rows:
        had = {n for (n,) in answer.get()}
        return [(name,) for name in names.values if _latch(name) in had]

    return rest


def begin_sweep(wire: Wire) -> Rest:
    wire.short_lock_timeout = True
    return wire.ask("begin_sweep").get


def end_sweep(wire: Wire) -> Rest:
    wire.ask("end_sweep", LOCK_SECONDS)
    wire.short_lock_timeout = False
    return nothing


def allocate_numbers(wire: Wire, blocks: int) -> Rest:
    answers = [wire.ask("allocate_numbers") for _ in range(blocks)]
    return lambda: [row for one in answers for row in one.get()]


def fold_counts(wire: Wire, most: int) -> Rest:
    answer = wire.ask("lock_counts", most)

    def rest() -> Rows:
        rows = answer.get()
        sums: dict[tuple[int, int], int] = {}
        for _, q, kind, n in rows:
            sums[q, kind] = sums.get((q, kind), 0) + n
        kept = [(q, kind, n) for (q, kind), n in sums.items() if n]
        wire.ask("fold_counts", Ints(no for no, _, _, _ in rows), *ints(kept, 3))
        return []

    return rest


def lock_due_delayed(wire: Wire, now: int, limit: int) -> Rest:
    answer = wire.ask("lock_due_delayed", now, limit)

    def rest() -> Rows:
        due = sorted((run_at, seq, tuple(row)) for seq, *row, run_at in answer.get())
        return [(seq, *row) for _, seq, row in due]

    return rest


def delete_past_fair_turns(wire: Wire, q: int, now: int, most: int) -> Rest:
    answer = wire.ask("select_past_fair_turns", q, now, most)

    def rest() -> Rows:
        wire.ask("delete_past_fair_turns", q, Blobs(sorted(group for (group,) in answer.get())))
        return []

    return rest


def delete_reaped_claims(wire: Wire, untils: Ints, leases: Ints) -> Rest:
    wire.ask("delete_settled_claims", untils, leases)
    return nothing


def purge_dead(wire: Wire, q: int, limit: int) -> Rest:
    answer = wire.ask("purge_dead", q, limit)

    def rest() -> Rows:
        rows = answer.get()
        wire.ask("revive_dead", Ints(seq for seq, _ in rows))
        return rows_with_attempts(wire, rows)

    return rest


def remove_ended(wire: Wire, seqs: Ints) -> Rest:
    out = wire.ask("remove_ended", seqs)
    return lambda: rows_with_attempts(wire, out.get())


def trim_results(wire: Wire, now: int, limit: int) -> Rest:
    answer = wire.ask("trim_results", now, limit)

    def rest() -> Rows:
        rows = answer.get()
        wire.ask("delete_results", Ints(seq for (seq,) in rows))
        return rows

    return rest


def trim_idempotency_keys(wire: Wire, now: int, limit: int) -> Rest:
    answer = wire.ask("trim_idempotency_keys", now, limit)

    def rest() -> Rows:
        rows = answer.get()
        by_tenant: dict[str, list[bytes]] = {}
        for tenant, word in rows:
            by_tenant.setdefault(tenant, []).append(word)
        for tenant, words in by_tenant.items():
            wire.ask("delete_idempotency_keys", tenant, Blobs(words))
        return rows

    return rest


def trim_group_rates(wire: Wire, now: int, limit: int) -> Rest:
    answer = wire.ask("trim_group_rates", now, limit)

    def rest() -> Rows:
        rows = answer.get()
        for q, found in by_queue(rows).items():
            wire.ask("delete_group_rates", q, Blobs(sorted(found)))
        return rows

    return rest


def set_run_at(wire: Wire, seqs: Ints, times: Ints) -> Rest:
    for at, found in by_queue(zip(times.values, seqs.values, strict=True)).items():
        wire.ask("set_run_at", at, Ints(found))
    return nothing


def write_commit(
    wire: Wire, now: int, sizes: Ints, qs: Ints, records: Blobs, count_q: Ints, kinds: Ints, changes: Ints,
    end_q: Ints, states: Ints, ends: Blobs, untils: Ints, leases: Ints, claims: Blobs,
) -> Rest:  # fmt: skip
    count = len(sizes.values)
    if count:
        wire.ask("insert_journal", now, sizes.values[0], qs.values[0], records.values[0])
        wire.ask(
            "insert_journal_rest", now, Ints(range(2, count + 1)), Ints(sizes.values[1:]), Ints(qs.values[1:]),
            Blobs(records.values[1:]),
        )  # fmt: skip
    elif end_q.values:
        wire.ask("draw_entry_number")
    wire.ask("insert_counts", count_q, kinds, changes)
    wire.ask("insert_endings", now, end_q, states, ends)
    wire.ask("schedule_reap", untils, leases, claims)
    return nothing
