"""Names and numbers of the queues of a schema, the tail of its ids, and what this process remembers of it."""

from __future__ import annotations

from tampu.engines.encoding import IdScheme, Record
from tampu.engines.sql.db import Db
from tampu.engines.sql.open_claims import OpenClaims


class QueueRegistry:
    """The numbers of queues: rows have a number where callers have a tenant and a name.

    A number is never reused, so it can be cached for good. Only a queue created in a commit that was rolled back is
    forgotten.
    """

    record: type[Record] = Record
    """How a journal record is packed."""

    def __init__(self, ids: IdScheme, stamp: int = 0, open_claims: OpenClaims | None = None) -> None:
        self.numbers: dict[tuple[str, str], int] = {}
        self.names: dict[int, tuple[str, str]] = {}
        self.id = ids
        """How ids are made from sequence numbers."""
        self.tail = ids.tail
        """Differs between stores."""
        self.stamp = stamp
        """Millisecond of the newest id known to this process: ids must grow even when the clock goes back."""
        self.expects_due = True
        """Something may be due soon: a claim must sweep first."""
        self.sweep_again_at = [0, 0, 0]
        """Do not sweep delays, leases and expiries again before these times, because what was due was locked."""
        self.open_claims = open_claims or OpenClaims()

    def learn(self, q: int, tenant: str, name: str) -> None:
        self.numbers[tenant, name] = q
        self.names[q] = (tenant, name)

    def forget(self, q: int) -> None:
        self.numbers.pop(self.names.pop(q), None)

    def number(self, db: Db, tenant: str, name: str) -> int | None:
        """The number of a queue; None if there is no such queue."""
        q = self.numbers.get((tenant, name))
        if q is None:
            q = db.value("select_queue_number", tenant, name)
            if q is not None:
                self.learn(q, tenant, name)
        return q

    def name(self, db: Db, q: int) -> tuple[str, str]:
        """(tenant, name) of a queue number."""
        found = self.names.get(q)
        if found is None:
            tenant, name = found = db.row("select_queue_name", q)
            self.learn(q, tenant, name)
        return found
