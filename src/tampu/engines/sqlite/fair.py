"""The ranks of groups in queues with the ordering `fair`. A commit reads the rank of a group once, and writes it once.

How ranks work: `tampu.engines.fair_ranks`.
"""

from __future__ import annotations

import sqlite3

from tampu.engines.fair_ranks import FORGOTTEN, FairRanks
from tampu.model.message import unpack_body


class FairTurns(FairRanks[str]):
    """The fair ranks that one commit gives."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__()
        self._db = db

    def rank(self, q: int, group: str) -> int:
        """The rank of the next message of a group that becomes ready."""
        if q not in self.rounds:
            (first,) = self._db.execute("SELECT min(rank) FROM tampu_ready WHERE q = ?", (q,)).fetchone()
            (last,) = self._db.execute("SELECT max(last) FROM tampu_fair WHERE q = ?", (q,)).fetchone()
            self.begin(q, first, last)
        if (q, group) not in self.last:
            known = self._db.execute("SELECT last FROM tampu_fair WHERE q = ? AND lane = ?", (q, group)).fetchone()
            (self.last[q, group],) = known or (0,)
        return self.take(q, group)

    def rank_of(self, q: int, seq: int) -> int:
        """The rank of a stored message that becomes ready. Its group is in its body."""
        (body,) = self._db.execute("SELECT body FROM tampu_message WHERE seq = ?", (seq,)).fetchone()
        return self.rank(q, unpack_body(body).group or "")

    def keep(self) -> None:
        """Write the new ranks, and delete some that are no longer needed."""
        if not self.changed:
            return
        self._db.executemany(
            "INSERT INTO tampu_fair VALUES (?, ?, ?) ON CONFLICT (q, lane) DO UPDATE SET last = excluded.last",
            [(q, group, self.last[q, group]) for q, group in self.changed],
        )
        for q, now in self.rounds.items():
            self._db.execute(
                "DELETE FROM tampu_fair WHERE q = ?1 AND lane IN"
                " (SELECT lane FROM tampu_fair WHERE q = ?1 AND last < ?2 ORDER BY last LIMIT ?3)",
                (q, now, FORGOTTEN * len(self.changed)),
            )
