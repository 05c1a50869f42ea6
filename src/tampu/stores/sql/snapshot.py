"""Finds the messages of a snapshot in a SQL database, read by several processes while the queues stay in use.

The plan is made in one database snapshot, whose journal has just been numbered: the plan sees exactly the commits up to
its position. Ended messages do not change; the states of the others are carried in the pieces. Bodies are read later;
they do not change, except that a key may give a waiting message a new payload.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

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

Row = tuple[int, int, int, int, int | None, int | None, bytes | None]
"""(seq, q, state number, attempts, run_at, ended at, reason)"""


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
        rows = [_place(row) for row in db.rows("select_messages", Ints(known))] if known else []
        return [_live(db, [row for row in rows if row[2] in codes and snapshot_rows.within(row[5], query)])]
    found = _ended(db, queues, codes & _ENDED, query)
    if READY in codes and query.ended_from is None and query.ended_to is None:
        unmoved: dict[int, list[bytes]] = {}
        for q, packed in db.rows("snapshot_unmoved", Ints(queues)):
            unmoved.setdefault(q, []).append(packed)
        for q, packs in unmoved.items():
            seqs, _ = unpack_seqs(packs)
            found.append(snapshot_rows.same(seqs, q, READY, 0, failures=np.zeros(len(seqs), np.int64)))
    rows = db.rows("snapshot_live", Ints(queues), Ints(codes - _ENDED))
    return [*(one.sorted() for one in found), _live(db, [row for row in rows if snapshot_rows.within(row[5], query)])]


def _place(row: Any) -> Row:
    """The index columns of a row of `select_messages`."""
    seq, q, _, _, _, _, _, _, state, attempts, run_at, ended_at, reason, *_ = row
    return seq, q, state, attempts, run_at, ended_at, reason


def find_ids(db: Db, registry: QueueRegistry, wanted: Sequence[str]) -> list[tuple[int, int]]:
    """(seq, q) of messages of all tenants; several tenants may have given the same id."""
    known = [id for id in dict.fromkeys(wanted) if _ID.match(id)]
    made = [registry.id.seq_of(id) for id in known]
    return db.rows(
        "snapshot_find",
        Ints(None if place is None else place[1] for place in made),
        Ints(None if place is None else place[0] for place in made),
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


def _live(db: Db, rows: Sequence[Row]) -> SnapshotRows:
    """Index rows as columns, with the other values that may change: failures so far, and expiry of dead messages."""
    rows = sorted(rows, key=lambda row: row[0])
    seqs = [row[0] for row in rows]
    failures = dict(db.rows("snapshot_failures", Ints(seqs))) if seqs else {}
    dead = [row[0] for row in rows if row[2] == DEAD]
    expires = dict(db.rows("snapshot_expiries", Ints(dead))) if dead else {}
    return SnapshotRows(
        snapshot_rows.numbers(seqs),
        snapshot_rows.numbers(row[1] for row in rows),
        snapshot_rows.numbers(row[2] for row in rows),
        snapshot_rows.numbers(row[3] for row in rows),
        snapshot_rows.numbers(row[4] for row in rows),
        snapshot_rows.numbers(row[5] for row in rows),
        [text(row[6]) for row in rows],
        snapshot_rows.numbers(failures.get(seq, 0) for seq in seqs),
        snapshot_rows.numbers(expires.get(seq) for seq in seqs) if expires else None,
    )
