"""Slots of groups: which messages get one, which are held, and which are next when a slot becomes free.

`tampu.engines.groups` explains slots and group rates; `group_rates` has what claims and retries cost in groups with a
rate. Every function here locks its groups first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from tampu.engines.encoding import HELD
from tampu.engines.groups import MOST_FREED, ORDERED, Limits
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Values
from tampu.engines.sql.locks import group_lock
from tampu.engines.sql.rules.indexes import hold, start
from tampu.engines.sql.rules.message_row import Held, MessageRow, Waiting

GroupKey = tuple[int, bytes]
"""A group: its queue and its name."""
Slot = tuple[int, bytes, int]
"""A taken slot: the group's queue and name, and the message that has it."""


@dataclass
class Group:
    """A group: its limits, and the messages that have its slots."""

    limits: Limits
    seqs: set[int]
    claimed: set[int] = field(default_factory=set)
    """Those of them that are leased; only known in groups with a rate."""
    spent: int = 0
    """When all spent tokens will be back. A time written by a clock that was ahead counts as "all spent now"."""

    @property
    def waiting(self) -> int:
        """Number of messages that have a slot and are not claimed yet."""
        return len(self.seqs - self.claimed)

    @property
    def free(self) -> int:
        return max(0, self.limits.vacant(len(self.seqs), self.waiting))

    def due(self, now: int, place: int, run_at: int | None) -> int | None:
        """When the message at this place (from 1) among those that wait for a token may run; not before ``run_at``."""
        if self.limits.group_rate is None:
            return run_at
        return max(run_at or 0, self.limits.group_rate.due(self.spent, now, place))


def lock_groups(
    commit: Commit, wanted: Collection[GroupKey], limits: Limits | None = None, *, group_rates: bool = True
) -> dict[GroupKey, Group]:
    """Lock these groups and read them: until the commit ends nobody else changes their slots or tokens.

    ``limits`` become the limits of the queues; None: read them from the queues.
    """
    found: dict[GroupKey, Group] = {}
    if not wanted:
        return found
    _lock(commit, wanted)
    for q, group, slots, us, burst, seq in commit.db.rows("select_slots", Values("ib", sorted(wanted))):
        if (q, group) not in found:
            found[q, group] = Group(Limits.from_row(slots, us, burst), set())
        if seq is not None:
            found[q, group].seqs.add(seq)
    if limits is not None:
        for q in {q for (q, _), group in found.items() if group.limits != limits}:
            set_limits(commit, q, limits)
        for known in found.values():
            known.limits = limits
    has_group_rate = (
        [name for name, group in found.items() if group.limits.group_rate is not None] if group_rates else []
    )
    if has_group_rate:
        for q, group, spent, seq in commit.db.rows("select_group_rates", Values("ib", sorted(has_group_rate))):
            group_rate = found[q, group].limits.group_rate
            assert group_rate is not None
            found[q, group].spent = min(spent or 0, group_rate.most(commit.now))
            if seq is not None:
                found[q, group].claimed.add(seq)
    return found


def _lock(commit: Commit, groups: Iterable[GroupKey]) -> None:
    commit.locks.take(group_lock(commit.registry.name(commit.db, q), group) for q, group in groups)


def set_limits(commit: Commit, q: int, limits: Limits) -> None:
    group_rate = limits.group_rate
    commit.db.send("set_group_limits", q, limits.slots, group_rate and group_rate.us, group_rate and group_rate.burst)


# -- slots


def take_slots(commit: Commit, slots: Sequence[Slot]) -> None:
    """Record that these messages have slots."""
    if slots:
        commit.db.send("insert_slots", Values("ibi", slots))


def free_slots(commit: Commit, slots: Sequence[Slot]) -> None:
    """Remove these slots without admitting the next messages."""
    if slots:
        commit.db.send("delete_slots", Values("ibi", slots))


# -- entering


def admit(commit: Commit, waiting: Sequence[Waiting], limits: Limits | None = None) -> list[int]:
    """`start` messages, but hold those whose group has no free slot; returns the new states.

    A message that kept its slot through a retry goes on in it; in ordered groups with a rate it needs a token again.
    ``limits`` as in `lock_groups`.
    """
    if not any(message.group is not None for message, _, _ in waiting):
        return start(commit, waiting)
    now = commit.now
    groups = lock_groups(
        commit, {(message.q, message.group) for message, _, _ in waiting if message.group is not None}, limits
    )
    held: list[Held] = []
    going: list[Waiting] = []
    slots: list[Slot] = []
    for message, run_at, lease in waiting:
        group = None if message.group is None else groups[message.q, message.group]
        later = run_at is not None and run_at > now
        if group is None or (later and group.limits.slots != ORDERED):
            going.append((message, run_at, lease))
        elif message.seq in group.seqs:
            going.append((message, group.due(now, 1, run_at) if group.limits.slots == ORDERED else run_at, lease))
        elif not group.free:
            held.append((message, run_at, None, message.group, b"group"))
        else:
            group.seqs.add(message.seq)
            slots.append((message.q, message.group or b"", message.seq))
            at = group.due(now, group.waiting, run_at)
            if at is not None and at > now:
                commit.waits[message.seq] = at
            going.append((message, at, lease))
    take_slots(commit, slots)
    hold(commit, held)
    states = dict(zip([message.seq for message, _, _ in going], start(commit, going), strict=True))
    return [states.get(message.seq, HELD) for message, _, _ in waiting]


# -- leaving


def leave_for_retry(commit: Commit, messages: Iterable[MessageRow]) -> None:
    """Free the slots of messages that will be retried later; in ordered groups they keep them."""
    grouped = [message for message in messages if message.group is not None]
    if grouped:
        names = {(message.q, message.group) for message in grouped if message.group is not None}
        groups = lock_groups(commit, names, group_rates=False)
        left = [message for message in grouped if groups[message.q, message.group or b""].limits.slots != ORDERED]
        leave_groups(commit, ((message.q, message.group, message.seq) for message in left))


def leave_groups(commit: Commit, over: Iterable[tuple[int, bytes | None, int]]) -> int:
    """(q, group, seq) of messages that ended: free their slots and admit the next held messages in the same commit.
    Returns how many were admitted."""
    ends = [(q, group, seq) for q, group, seq in over if group is not None]
    if not ends:
        return 0
    _lock(commit, ((q, group) for q, group, _ in ends))
    next_: list[Waiting] = []
    has_group_rate: list[GroupKey] = []
    for seq, q, attempts, stamp, own, group, *row, run_at in commit.db.rows(
        "release_slots", Values("ibi", ends), MOST_FREED
    ):
        if seq is None:
            has_group_rate.append((q, group))
        else:
            next_.append((MessageRow(seq, q, attempts, stamp, own, group, *row), run_at, None))
    _admit_next(commit, next_)
    return len(next_) + (fill(commit, lock_groups(commit, has_group_rate)) if has_group_rate else 0)


def fill(commit: Commit, groups: dict[GroupKey, Group]) -> int:
    """Admit held messages of these groups, which have a rate: each gets the time of its token. Returns how many."""
    open_ = [(q, name, group.free) for (q, name), group in sorted(groups.items()) if group.free]
    if not open_:
        return 0
    next_: list[Waiting] = []
    for *row, run_at in commit.db.rows("next_in_group", Values("ibi", open_)):
        message = MessageRow(*row)
        group = groups[message.q, message.group or b""]
        group.seqs.add(message.seq)
        next_.append((message, group.due(commit.now, group.waiting, run_at), None))
    _admit_next(commit, next_)
    return len(next_)


def _admit_next(commit: Commit, next_: Sequence[Waiting]) -> None:
    commit.count_all((message for message, _, _ in next_), HELD, -1)
    take_slots(
        commit, [(message.q, message.group, message.seq) for message, _, _ in next_ if message.group is not None]
    )
    for (message, _, _), state in zip(next_, start(commit, next_), strict=True):
        commit.note("free", state, message)
