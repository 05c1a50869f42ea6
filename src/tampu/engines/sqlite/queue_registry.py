"""What is true of a file for good: the tail of its ids and the numbers of its queues."""

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
        """The queue that retention looked at last (see `trimming`)."""

    def _find_number(self, db: sqlite3.Connection, tenant: str, name: str) -> int | None:
        row = db.execute("SELECT q FROM tampu_queue WHERE tenant = ? AND name = ?", (tenant, name)).fetchone()
        return None if row is None else int(row[0])

    def _find_name(self, db: sqlite3.Connection, q: int) -> tuple[str, str]:
        tenant, name = db.execute("SELECT tenant, name FROM tampu_queue WHERE q = ?", (q,)).fetchone()
        return tenant, name


def find(db: sqlite3.Connection, registry: QueueRegistry, tenant: str, id: str) -> tuple[int, int] | None:
    """(seq, q) of the message with this id, if it is one of the tenant's."""
    seq = ids.seq_of(id, registry.tail)
    rows = [] if seq is None else db.execute("SELECT seq, q FROM tampu_message WHERE seq = ?", (seq,)).fetchall()
    if not any(registry.name(db, q)[0] == tenant for _, q in rows):
        rows = db.execute("SELECT seq, q FROM tampu_message WHERE id = ?", (ids.id_bytes(id),)).fetchall()
    return next(((seq, q) for seq, q in rows if registry.name(db, q)[0] == tenant), None)
