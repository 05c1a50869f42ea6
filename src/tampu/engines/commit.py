"""What a commit is, in engines on tables: which verbs run, what they gather, and the numbers of queues.

`carry_out` runs the calls of a commit. The verbs gather counts, journal records and wake-ups in a `CommitState`. Each
engine's `Commit` extends it with the clock, the sequence numbers and the connection, and writes all of it once, in
`finish`. What each verb does is in the engine.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from tampu.engines.encoding import DEAD
from tampu.engines.port import Call, Together
from tampu.engines.units import Names, carry_out_units
from tampu.model.errors import TampuError

D = TypeVar("D")
"""A connection."""


class QueueNumbers(abc.ABC, Generic[D]):
    """The numbers of queues. Rows have a number where callers have a tenant and a name.

    A number is never reused, so it can be cached for good. Only a queue created in a commit that was rolled back is
    forgotten.
    """

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], int] = {}
        self.names: dict[int, tuple[str, str]] = {}

    @abc.abstractmethod
    def _find_number(self, db: D, tenant: str, name: str) -> int | None: ...

    @abc.abstractmethod
    def _find_name(self, db: D, q: int) -> tuple[str, str]: ...

    def learn(self, q: int, tenant: str, name: str) -> None:
        self.numbers[tenant, name] = q
        self.names[q] = (tenant, name)

    def forget(self, q: int) -> None:
        self.numbers.pop(self.names.pop(q), None)

    def number(self, db: D, tenant: str, name: str) -> int | None:
        """The number of a queue; None if there is no such queue."""
        q = self.numbers.get((tenant, name))
        if q is None:
            q = self._find_number(db, tenant, name)
            if q is not None:
                self.learn(q, tenant, name)
        return q

    def name(self, db: D, q: int) -> tuple[str, str]:
        """(tenant, name) of a queue number."""
        found = self.names.get(q)
        if found is None:
            found = self._find_name(db, q)
            self.learn(q, *found)
        return found


H = TypeVar("H", bound=QueueNumbers[Any])
R = TypeVar("R")
"""A journal record: what one verb did."""


class CommitState(Generic[H, R]):
    """What a commit has gathered so far."""

    def __init__(self, registry: H, blank: Callable[[], R]) -> None:
        self.registry = registry
        self.ready: dict[int, int] = {}
        """How many messages became ready, by queue."""
        self.leases_expired: dict[int, tuple[int, int]] = {}
        """Expired leases by queue: how many messages are ready again, and how many are dead."""
        self.due: int | None = None
        """The earliest time at which something this commit wrote is due."""
        self.waits: dict[int, int] = {}
        """Until when messages that got a slot in this commit wait, for their time or for a token."""
        self._blank = blank
        self._deltas: dict[tuple[int, int], int] = {}
        self._endings: dict[tuple[int, int], list[int]] = {}
        self._records: dict[tuple[Any, ...], R] = {}
        self._noted: set[int] = set()
        self._earlier_records: list[tuple[tuple[Any, ...], R]] = []
        self._new_queues: list[int] = []

    # -- queues and counts

    def forget_new_queues(self, keep: int = 0) -> None:
        """After a rollback: forget the queues created in this commit, except the first ``keep``."""
        for q in self._new_queues[keep:]:
            self.registry.forget(q)
        del self._new_queues[keep:]

    def count(self, q: int, kind: int, delta: int) -> None:
        self._deltas[q, kind] = self._deltas.get((q, kind), 0) + delta

    def changes(self, q: int) -> list[tuple[int, int]]:
        """(state number, change of its count) of a queue."""
        return [(kind, delta) for (owner, kind), delta in self._deltas.items() if owner == q]

    def ended(self, q: int, state: int, seqs: list[int]) -> None:
        """Note messages of one queue that have ended and whose rows are written."""
        self.count(q, state, len(seqs))
        self._endings.setdefault((q, state), []).extend(seqs)

    # -- wake-ups

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
        """Journal what follows after all that was recorded so far. The last transition of a message stays its last."""
        self._earlier_records.extend(self._records.items())
        self._records, self._noted = {}, set()

    def journal_records(self) -> list[tuple[tuple[Any, ...], R]]:
        """((verb, queue, state, worker), record), in the order to be written."""
        return [*self._earlier_records, *self._records.items()]


def expired_leases(records: Iterable[tuple[tuple[Any, ...], Any]]) -> dict[int, tuple[int, int]]:
    """By queue, how many messages the reaper made ready again, and how many dead, in a commit."""
    found: dict[int, tuple[int, int]] = {}
    for (verb, q, state, _), record in records:
        if verb == "reap":
            back, dead = found.get(q, (0, 0))
            count = len(record.seqs)
            found[q] = (back, dead + count) if state == DEAD else (back + count, dead)
    return found


# -- running the calls


class RecordGroups(Protocol):
    def begin_record_group(self) -> None:
        """Journal what follows after all that was recorded so far."""
        ...


def carry_out(
    verbs: Mapping[type[Any], Callable[[Any, Any], Sequence[Any]]],
    commit: RecordGroups,
    calls: Sequence[Call],
    names: Names,
) -> list[Any | TampuError]:
    """Run each verb once, in the order of ``verbs``, over all its calls. Replies are in the order of the calls."""
    if len(calls) == 1 and type(calls[0]) is not Together:
        return list(verbs[type(calls[0])](commit, calls))
    replies: list[Any] = [None] * len(calls)
    by_kind: dict[type[Any], list[int]] = {}
    for i, call in enumerate(calls):
        by_kind.setdefault(type(call), []).append(i)
    if Together in by_kind:
        return carry_out_units(lambda members: carry_out(verbs, commit, members, names), names, commit, calls)
    for kind, verb in verbs.items():
        indexes = by_kind.get(kind)
        if indexes:
            for i, reply in zip(indexes, verb(commit, [calls[i] for i in indexes]), strict=True):
                replies[i] = reply
            commit.begin_record_group()
    return replies
