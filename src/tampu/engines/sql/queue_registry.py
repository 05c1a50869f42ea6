"""What is true of a schema for good: the tail of its ids, the numbers of its queues; and what a process remembers."""

from __future__ import annotations

from tampu.engines.commit import QueueNumbers
from tampu.engines.sql.db import Db
from tampu.engines.sql.ids import Ids
from tampu.engines.sql.open_claims import OpenClaims


class QueueRegistry(QueueNumbers[Db]):
    def __init__(self, tail: int, stamp: int = 0, watched: OpenClaims | None = None) -> None:
        super().__init__()
        self.tail = tail
        self.id = Ids(tail)
        self.stamp = stamp
        """The newest id's millisecond that this process knows of: ids grow, also when the clock goes back."""
        self.expects_due = True
        """Something may be due soon: a claim must look first."""
        self.rests = [0, 0, 0]
        """Of delays, leases and expiries: before these times nobody here looks again for what is due. It was locked."""
        self.watched = watched or OpenClaims()

    def _find_number(self, db: Db, tenant: str, name: str) -> int | None:
        q: int | None = db.value("select_queue_number", tenant, name)
        return q

    def _find_name(self, db: Db, q: int) -> tuple[str, str]:
        tenant, name = db.row("select_queue_name", q)
        return tenant, name
