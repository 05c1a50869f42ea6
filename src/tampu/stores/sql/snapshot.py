"""Finds the messages of a snapshot in a SQL database, read by several processes while the queues stay in use.

The plan is made in one database snapshot, whose journal has just been numbered: the plan sees exactly the commits up to
its position. Ended messages do not change; the states of the others are carried in the pieces. Bodies are read later;
they do not change, except that a key may give a waiting message a new payload.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tampu.engines.encoding import CODE, DEAD, READY, id_bytes
from tampu.engines.sql.db import Db, Ints, Uuids, text
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.model.states import FINAL
from tampu.stores.arrow import snapshot_rows
from tampu.stores.arrow.numbers import unpack_seqs
from tampu.stores.arrow.snapshot_rows import SnapshotRows
from tampu.stores.port import MessageQuery

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_ENDED = frozenset(CODE[state] for state in FINAL)
_LAST = (1 << 63) - 1


class Row(NamedTuple):
    """A message as it is in the indexes."""

    seq: int
    q: int
    state: int
    attempts: int
    run_at: int | None
    ended_at: int | None
    reason: bytes | None


def find_rows(db: Db, registry: QueueRegistry, query: MessageQuery) -> list[SnapshotRows]:
    """The states of all messages that match the query."""
    queues = [
        q
        for q, tenant, name in db.rows("snapshot_queues")
        if (query.tenant is None or tenant == query.tenant) and (not query.queues or name in query.queues)
    ]
    codes = {CODE[state] for state in query.states}
    if query.ids is not None:
        known = [seq for seq, q in find_ids(db, registry, query.ids) if q in queues]
        rows = [
            Row(seq, q, state, attempts, run_at, ended_at, reason)
            for seq, q, _, _, _, _, _, _, state, attempts, run_at, ended_at, reason, *_ in (
                db.rows("select_messages", Ints(known)) if known else []
            )
            if state in codes
        ]
        return [_live(db, rows, query)]
    found = _ended(db, queues, codes & _ENDED, query)
    if READY in codes and query.ended_from is None and query.ended_to is None:
        unmoved: dict[int, list[bytes]] = {}
        for q, packed in db.rows("snapshot_unmoved", Ints(queues)):
            unmoved.setdefault(q, []).append(packed)
        for q, packs in unmoved.items():
            seqs, _ = unpack_seqs(packs)
            found.append(snapshot_rows.same(seqs, q, READY, 0, failures=np.zeros(len(seqs), np.int64)))
    live = map(Row._make, db.rows("snapshot_live", Ints(queues), Ints(codes - _ENDED)))
    return [*(one.sorted() for one in found), _live(db, live, query)]


def find_ids(db: Db, registry: QueueRegistry, wanted: Sequence[str]) -> list[tuple[int, int]]:
    """(seq, q) of messages of all tenants; several tenants may have given the same id."""
    known = [id for id in dict.fromkeys(wanted) if _ID.match(id)]
    made = [registry.id.seq_of(id) for id in known]
    return db.rows(
        "snapshot_find",
        Ints(None if parsed is None else parsed.seq for parsed in made),
        Ints(None if parsed is None else parsed.stamp for parsed in made),
        Uuids(id_bytes(id) for id in known),
    )


def _ended(db: Db, queues: Sequence[int], codes: set[int], query: MessageQuery) -> list[SnapshotRows]:
    """Ended messages, by queue and state."""
    if not codes:
        return []
    last = _LAST if query.ended_to is None else query.ended_to
    groups: dict[tuple[int, int], tuple[list[int], list[bytes]]] = {}
    for q, state, at, packed in db.rows("snapshot_endings", Ints(queues), Ints(codes), query.ended_from or 0, last):
        times, seqs = groups.setdefault((q, state), ([], []))
        times.append(at)
        seqs.append(packed)
    return [
        snapshot_rows.same(found, q, state, ended_at=np.repeat(np.array(times, np.int64), counts))
        for (q, state), (times, packed) in sorted(groups.items())
        for found, counts in [unpack_seqs(packed)]
    ]


def _live(db: Db, found: Iterable[Row], query: MessageQuery) -> SnapshotRows:
    """Index rows as columns, with the other values that may change: failures so far, and expiry of dead messages."""
    rows = sorted((row for row in found if snapshot_rows.within(row.ended_at, query)), key=lambda row: row.seq)
    seqs = [row.seq for row in rows]
    failures = dict(db.rows("snapshot_failures", Ints(seqs))) if seqs else {}
    dead = [row.seq for row in rows if row.state == DEAD]
    expires = dict(db.rows("snapshot_expiries", Ints(dead))) if dead else {}
    return SnapshotRows(
        snapshot_rows.numbers(seqs),
        snapshot_rows.numbers(row.q for row in rows),
        snapshot_rows.numbers(row.state for row in rows),
        snapshot_rows.numbers(row.attempts for row in rows),
        snapshot_rows.numbers(row.run_at for row in rows),
        snapshot_rows.numbers(row.ended_at for row in rows),
        [text(row.reason) for row in rows],
        snapshot_rows.numbers(failures.get(seq, 0) for seq in seqs),
        snapshot_rows.numbers(expires.get(seq) for seq in seqs) if expires else None,
    )
