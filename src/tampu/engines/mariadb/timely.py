"""Moves that time and retention bring about, and what every commit has: locks, numbers, its end."""

from __future__ import annotations

import zlib

from tampu.engines.mariadb.moving import Rest, by_queue, cards, ints, nothing
from tampu.engines.mariadb.wire import Rows, Wire
from tampu.engines.sql.db import Blobs, Ints

LATCHES = 4096
"""Rows of `latch`; the first is the sweeper's."""
LOCK_SECONDS = 10
"""How long our sessions wait for a lock."""


def _latch(name: bytes | None) -> int:
    return 1 + zlib.crc32(name or b"") % (LATCHES - 1)


def locks(wire: Wire, names: Blobs) -> Rest:
    return wire.ask("locks", Ints(sorted({_latch(name) for name in names.values}))).get


def try_locks(wire: Wire, names: Blobs) -> Rest:
    asked = wire.ask("try_locks", Ints(sorted({_latch(name) for name in names.values})))

    def rest() -> Rows:
        had = {n for (n,) in asked.get()}
        return [(name,) for name in names.values if _latch(name) in had]

    return rest


def sweeping(wire: Wire) -> Rest:
    wire.hurried = True
    return wire.ask("sweeping").get


def swept(wire: Wire) -> Rest:
    wire.ask("swept", LOCK_SECONDS)
    wire.hurried = False
    return nothing


def numbers(wire: Wire, blocks: int) -> Rest:
    asked = [wire.ask("numbers") for _ in range(blocks)]
    return lambda: [row for one in asked for row in one.get()]


def fold(wire: Wire, most: int) -> Rest:
    looked = wire.ask("fold_look", most)

    def rest() -> Rows:
        rows = looked.get()
        sums: dict[tuple[int, int], int] = {}
        for _, q, kind, n in rows:
            sums[q, kind] = sums.get((q, kind), 0) + n
        kept = [(q, kind, n) for (q, kind), n in sums.items() if n]
        wire.ask("fold", Ints(row[0] for row in rows), *ints(kept, 3))
        return []

    return rest


def promote(wire: Wire, now: int, limit: int) -> Rest:
    looked = wire.ask("promote", now, limit)

    return lambda: [row[:11] for row in sorted(looked.get(), key=lambda row: (row[11], row[0]))]


def fair_forget(wire: Wire, q: int, now: int, most: int) -> Rest:
    looked = wire.ask("fair_behind", q, now, most)

    def rest() -> Rows:
        wire.ask("fair_forget", q, Blobs(sorted(lane for (lane,) in looked.get())))
        return []

    return rest


def drop_claims(wire: Wire, untils: Ints, leases: Ints) -> Rest:
    wire.ask("leave_claims", untils, leases)
    return nothing


def unbury(wire: Wire, q: int, limit: int) -> Rest:
    looked = wire.ask("unbury", q, limit)

    def rest() -> Rows:
        rows = looked.get()
        wire.ask("raise", Ints(row[0] for row in rows))
        return cards(wire, rows)

    return rest


def unend(wire: Wire, seqs: Ints) -> Rest:
    out = wire.ask("unend", seqs)
    return lambda: cards(wire, out.get())


def trim_results(wire: Wire, now: int, limit: int) -> Rest:
    looked = wire.ask("trim_results", now, limit)

    def rest() -> Rows:
        rows = looked.get()
        wire.ask("drop_results", Ints(row[0] for row in rows))
        return rows

    return rest


def trim_requests(wire: Wire, now: int, limit: int) -> Rest:
    looked = wire.ask("trim_requests", now, limit)

    def rest() -> Rows:
        rows = looked.get()
        by_tenant: dict[str, list[bytes]] = {}
        for tenant, word in rows:
            by_tenant.setdefault(tenant, []).append(word)
        for tenant, words in by_tenant.items():
            wire.ask("drop_requests", tenant, Blobs(words))
        return rows

    return rest


def trim_paces(wire: Wire, now: int, limit: int) -> Rest:
    looked = wire.ask("trim_paces", now, limit)

    def rest() -> Rows:
        rows = looked.get()
        for q, found in by_queue(rows).items():
            wire.ask("drop_paces", q, Blobs(sorted(row[1] for row in found)))
        return rows

    return rest


def retime(wire: Wire, seqs: Ints, times: Ints) -> Rest:
    for at, found in by_queue(zip(times.values, seqs.values, strict=True)).items():
        wire.ask("retime", at, Ints(row[1] for row in found))
    return nothing


def journal_trim(wire: Wire, before: int, limit: int, upto: int | None) -> Rest:
    looked = wire.ask("journal_oldest", limit)

    def rest() -> Rows:
        gone = []
        for first, n, at in looked.get():
            if at > before or (upto is not None and first + n - 1 > upto):
                break
            gone.append((first,))
        wire.ask("journal_trim", Ints(first for (first,) in gone))
        return gone

    return rest


def finish(
    wire: Wire, now: int, sizes: Ints, qs: Ints, records: Blobs, count_q: Ints, kinds: Ints, changes: Ints,
    end_q: Ints, states: Ints, ends: Blobs, untils: Ints, leases: Ints, claims: Blobs,
) -> Rest:  # fmt: skip
    count = len(sizes.values)
    if count:
        wire.ask("tell", now, sizes.values[0], qs.values[0], records.values[0])
        wire.ask(
            "tell_more", now, Ints(range(2, count + 1)), Ints(sizes.values[1:]), Ints(qs.values[1:]),
            Blobs(records.values[1:]),
        )  # fmt: skip
    elif end_q.values:
        wire.ask("entry")
    wire.ask("count", count_q, kinds, changes)
    wire.ask("ending", now, end_q, states, ends)
    wire.ask("watch", untils, leases, claims)
    return nothing
