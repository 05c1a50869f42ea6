"""The turns of groups in queues with the ordering `fair`: where a group stands is looked up once, and kept at the end.

What a turn is: `tampu.engines.turns`. Who gives turns in a queue has its lock: others who would do so wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.sql.card import Card
from tampu.engines.sql.db import Blobs, Db, Ints
from tampu.engines.sql.house import House
from tampu.engines.sql.locks import Locks, fair_lock
from tampu.engines.turns import FORGOTTEN, Turns
from tampu.model.message import unpack_body
from tampu.model.rank import FAIR


class FairTurns(Turns[bytes]):
    """One commit's."""

    def __init__(self, db: Db, house: House, locks: Locks) -> None:
        super().__init__()
        self._db = db
        self._house = house
        self._locks = locks
        self.groups: dict[int, bytes] = {}
        """Of messages that take turns and are known here: the group, empty if there is none."""

    def ranks_of(self, cards: Sequence[Card]) -> list[int]:
        """The ranks of messages that become ready, also of those that take no turns."""
        ranks = [card.rank for card in cards]
        fair = [card for card in cards if card.rank == FAIR]
        if fair:
            unknown = [card.seq for card in fair if card.seq not in self.groups]
            if unknown:
                bodies = self._db.rows("select_bodies", Ints(unknown))
                self.groups.update((seq, (unpack_body(body).group or "").encode()) for seq, body in bodies)
            turns = iter(self.ranks([(card.q, self.groups[card.seq]) for card in fair]))
            ranks = [next(turns) if rank == FAIR else rank for rank in ranks]
        return ranks

    def ranks(self, groups: Sequence[tuple[int, bytes]]) -> list[int]:
        """The ranks of the next messages of these groups that become ready."""
        self._locks.take(fair_lock(*self._house.name(self._db, q)) for q in {q for q, _ in groups})
        for q in {q for q, _ in groups}:
            if q not in self.rounds:
                self.begin(q, *self._db.row("select_fair_round", q))
            unknown = {group for owner, group in groups if owner == q and (q, group) not in self.last}
            if unknown:
                self.last.update({(q, group): 0 for group in unknown})
                found = self._db.rows("select_fair_turns", q, Blobs(sorted(unknown)))
                self.last.update({(q, group): last for group, last in found})
        return [self.take(q, group) for q, group in groups]

    def keep(self) -> None:
        """Write down where the groups stand now, and forget some that need not be remembered any more."""
        if not self.changed:
            return
        kept = sorted(self.changed)
        self._db.send(
            "upsert_fair_turns",
            Ints(q for q, _ in kept),
            Blobs(group for _, group in kept),
            Ints(self.last[place] for place in kept),
        )
        for q, now in self.rounds.items():
            self._db.send("delete_past_fair_turns", q, now, FORGOTTEN * len(kept))
