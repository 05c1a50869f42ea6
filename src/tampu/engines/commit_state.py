"""What a commit keeps in mind until it is written, in engines on tables: counts, journal, and who is to wake for it.

An engine's `Commit` is one of these, with the clock, the numbers and the connection; its `finish` writes what stands
here, once per commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tampu.engines.queue_numbers import QueueNumbers

H = TypeVar("H", bound=QueueNumbers[Any])
R = TypeVar("R")
"""A record of the journal: what one verb did."""


class CommitState(Generic[H, R]):
    def __init__(self, registry: H, blank: Callable[[], R]) -> None:
        self.registry = registry
        self.ready: dict[int, int] = {}
        """How many messages became ready, by queue."""
        self.leases_expired: dict[int, tuple[int, int]] = {}
        """By queue, leases that ran out: messages that are ready again, and dead."""
        self.due: int | None = None
        """The earliest time at which something this commit wrote is due."""
        self.waits: dict[int, int] = {}
        """Of messages that got a place here: until when they wait, for their time or for a token."""
        self._blank = blank
        self._deltas: dict[tuple[int, int], int] = {}
        self._endings: dict[tuple[int, int], list[int]] = {}
        self._records: dict[tuple[Any, ...], R] = {}
        self._noted: set[int] = set()
        self._told: list[tuple[tuple[Any, ...], R]] = []
        self._new_queues: list[int] = []

    # -- queues and counts

    def forget_new_queues(self, kept: int = 0) -> None:
        """After a rollback: the queues made in this commit do not exist, but for the first so many."""
        for q in self._new_queues[kept:]:
            self.registry.forget(q)
        del self._new_queues[kept:]

    def count(self, q: int, kind: int, delta: int) -> None:
        self._deltas[q, kind] = self._deltas.get((q, kind), 0) + delta

    def changes(self, q: int) -> list[tuple[int, int]]:
        """(state number, how many more) of a queue."""
        return [(kind, delta) for (owner, kind), delta in self._deltas.items() if owner == q]

    def ended(self, q: int, state: int, seqs: list[int]) -> None:
        """Note messages of one queue whose rows among the ended are written."""
        self.count(q, state, len(seqs))
        self._endings.setdefault((q, state), []).extend(seqs)

    # -- who is to wake, and when

    def became_ready(self, q: int, count: int) -> None:
        self.ready[q] = self.ready.get(q, 0) + count

    def falls_due(self, at: int) -> None:
        if self.due is None or at < self.due:
            self.due = at

    # -- journal

    def record(self, verb: str, q: int, state: int | None, worker: str | None = None) -> R:
        """The journal record of this commit for a verb, queue, state and worker."""
        key = (verb, q, state, worker)
        found = self._records.get(key)
        if found is None:
            found = self._records[key] = self._blank()
        return found

    def begin_record_group(self) -> None:
        """What follows is journaled after what was so far: a message that moves twice ends where it moved last."""
        self._told.extend(self._records.items())
        self._records, self._noted = {}, set()

    def told(self) -> list[tuple[tuple[Any, ...], R]]:
        """((verb, queue, state, worker), record), in the order to be written."""
        return [*self._told, *self._records.items()]
