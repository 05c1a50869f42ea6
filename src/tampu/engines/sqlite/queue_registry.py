"""What never changes in a file: the tail of its ids and the numbers of its queues."""

from __future__ import annotations

import sqlite3

from tampu.engines.commit import QueueNumbers
from tampu.engines.sqlite import ids


class QueueRegistry(QueueNumbers[sqlite3.Connection]):
    def __init__(self, tail: int) -> None:
        super().__init__()
        self.tail = tail
        self.id = ids.Ids(tail)
        self.trimmed = 0
        """The queue that was trimmed last (see `trim`)."""

    def _find_number(self, db: sqlite3.Connection, tenant: str, name: str) -> int | None:
        row = db.execute("SELECT q FROM tampu_queue WHERE tenant = ? AND name = ?", (tenant, name)).fetchone()
        if row is None:
            return None
        (q,) = row
        return int(q)

    def _find_name(self, db: sqlite3.Connection, q: int) -> tuple[str, str]:
        tenant, name = db.execute("SELECT tenant, name FROM tampu_queue WHERE q = ?", (q,)).fetchone()
        return tenant, name


def find(db: sqlite3.Connection, registry: QueueRegistry, tenant: str, id: str) -> tuple[int, int] | None:
    """(seq, q) of the tenant's message with this id."""
    by_seq = ("SELECT seq, q FROM tampu_message WHERE seq = ?", ids.seq_of(id, registry.tail))
    by_id = ("SELECT seq, q FROM tampu_message WHERE id = ?", ids.id_bytes(id))
    for sql, value in (by_seq, by_id):
        rows = [] if value is None else db.execute(sql, (value,)).fetchall()
        for seq, q in rows:
            owner, _ = registry.name(db, q)
            if owner == tenant:
                return seq, q
    return None
