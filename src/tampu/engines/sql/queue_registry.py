"""Names and numbers of the queues of a schema, the tail of its ids, and what this process remembers of it."""

from __future__ import annotations

from tampu.engines.commit import QueueNumbers
from tampu.engines.sql.db import Db
from tampu.engines.sql.ids import Ids
from tampu.engines.sql.open_claims import OpenClaims


class QueueRegistry(QueueNumbers[Db]):
    def __init__(self, tail: int, stamp: int = 0, open_claims: OpenClaims | None = None) -> None:
        super().__init__()
        self.tail = tail
        self.id = Ids(tail)
        self.stamp = stamp
        """Millisecond of the newest id known to this process: ids must grow even when the clock goes back."""
        self.expects_due = True
        """Something may be due soon: a claim must sweep first."""
        self.sweep_again_at = [0, 0, 0]
        """Do not sweep delays, leases and expiries again before these times, because what was due was locked."""
        self.open_claims = open_claims or OpenClaims()

    def _find_number(self, db: Db, tenant: str, name: str) -> int | None:
        q: int | None = db.value("select_queue_number", tenant, name)
        return q

    def _find_name(self, db: Db, q: int) -> tuple[str, str]:
        tenant, name = db.row("select_queue_name", q)
        return tenant, name
