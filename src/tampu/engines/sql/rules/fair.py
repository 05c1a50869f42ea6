"""Turns of groups in queues with `fair` ordering: read once per commit, written at its end.

`tampu.engines.fair_ranks` explains turns. A commit that gives turns in a queue holds the queue's fair lock.
"""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.fair_ranks import FORGOTTEN, FairRanks
from tampu.engines.sql.db import Db, Ints, Values
from tampu.engines.sql.locks import Locks, fair_lock
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.engines.sql.rules.message_row import MessageRow
from tampu.model.message import unpack_body
from tampu.model.rank import FAIR


class FairTurns(FairRanks[bytes]):
    """The turns that one commit gives."""

    def __init__(self, db: Db, registry: QueueRegistry, locks: Locks) -> None:
        super().__init__()
        self._db = db
        self._registry = registry
        self._locks = locks
        self.groups: dict[int, bytes] = {}
        """Groups of fair messages by seq, as far as they are known; empty for a message without a group."""

    def ranks_of(self, messages: Sequence[MessageRow]) -> list[int]:
        """The ranks of messages that become ready, of any ordering."""
        ranks = [message.rank for message in messages]
        fair = [message for message in messages if message.rank == FAIR]
        if fair:
            unknown = [message.seq for message in fair if message.seq not in self.groups]
            if unknown:
                bodies = self._db.rows("select_bodies", Ints(unknown))
                self.groups.update((seq, (unpack_body(body).group or "").encode()) for seq, body in bodies)
            turns = iter(self.ranks([(message.q, self.groups[message.seq]) for message in fair]))
            ranks = [next(turns) if rank == FAIR else rank for rank in ranks]
        return ranks

    def ranks(self, groups: Sequence[tuple[int, bytes]]) -> list[int]:
        """The ranks of the next messages of these groups that become ready."""
        self._locks.take(fair_lock(*self._registry.name(self._db, q)) for q in {q for q, _ in groups})
        for q in {q for q, _ in groups}:
            if q not in self.rounds:
                self.begin(q, *self._db.row("select_fair_round", q))
            unknown = {group for owner, group in groups if owner == q and (q, group) not in self.last}
            if unknown:
                self.last.update({(q, group): 0 for group in unknown})
                found = self._db.rows("select_fair_turns", q, Values("b", [(group,) for group in sorted(unknown)]))
                self.last.update({(q, group): last for group, last in found})
        return [self.take(q, group) for q, group in groups]

    def keep(self) -> None:
        """Write the new turns, and delete some that are in the past."""
        if not self.changed:
            return
        kept = sorted((q, group, self.last[q, group]) for q, group in self.changed)
        self._db.send("upsert_fair_turns", Values("ibi", kept))
        for q, now in self.rounds.items():
            self._db.send("delete_past_fair_turns", q, now, FORGOTTEN * len(kept))
