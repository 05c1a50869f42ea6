"""The places of groups: who gets one and goes on, who is held, who goes next when one is left.

What a place is, and a pace: `tampu.engines.groups`. What a claim costs where there is a pace: `pacing`. Everything here
has the locks of its groups first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from tampu.engines.encoding import HELD
from tampu.engines.groups import MOST_FREED, ORDERED, Limits
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs, Ints
from tampu.engines.sql.indexes import hold, start
from tampu.engines.sql.locks import group_lock
from tampu.engines.sql.message_row import MessageRow, Waiting

Named = tuple[int, bytes]
"""A group: its queue and its name."""
Slot = tuple[int, bytes, int]
"""A place: the group's queue and name, and the message that has it."""


@dataclass
class Group:
    """A group: its limits, and who has its places."""

    limits: Limits
    seqs: set[int]
    claimed: set[int] = field(default_factory=set)
    """Of these, and where there is a pace: who is leased."""
    spent: int = 0
    """When all the tokens that were spent are saved up again; by a clock that was ahead, as if all were spent now."""

    @property
    def waiting(self) -> int:
        """How many have a place and were not claimed yet."""
        return len(self.seqs - self.claimed)

    @property
    def room(self) -> int:
        return max(0, self.limits.vacant(len(self.seqs), self.waiting))

    def due(self, now: int, place: int, run_at: int | None) -> int | None:
        """When the message may go that is so many-th to wait for a token; not before ``run_at``."""
        if self.limits.group_rate is None:
            return run_at
        return max(run_at or 0, self.limits.group_rate.due(self.spent, now, place))


def known_groups(
    commit: Commit, wanted: Collection[Named], limits: Limits | None = None, *, group_rates: bool = True
) -> dict[Named, Group]:
    """These groups, locked: nobody else takes or leaves a place or a token of theirs.

    ``limits`` are those of each group from now on; None: as the queue says.
    """
    found: dict[Named, Group] = {}
    if not wanted:
        return found
    _lock(commit, wanted)
    for q, group, slots, us, burst, seq in commit.db.rows("select_slots", *_columns(wanted)):
        if (q, group) not in found:
            found[q, group] = Group(Limits.kept(slots, us, burst), set())
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
        for q, group, spent, seq in commit.db.rows("select_group_rates", *_columns(has_group_rate)):
            group_rate = found[q, group].limits.group_rate
            assert group_rate is not None
            found[q, group].spent = min(spent or 0, group_rate.most(commit.now))
            if seq is not None:
                found[q, group].claimed.add(seq)
    return found


def _lock(commit: Commit, groups: Iterable[Named]) -> None:
    commit.locks.take(group_lock(commit.registry.name(commit.db, q), group) for q, group in groups)


def _columns(groups: Iterable[Named]) -> tuple[Ints, Blobs]:
    pairs = sorted(groups)
    return Ints(q for q, _ in pairs), Blobs(group for _, group in pairs)


def set_limits(commit: Commit, q: int, limits: Limits) -> None:
    group_rate = limits.group_rate
    commit.db.send("set_group_limits", q, limits.slots, group_rate and group_rate.us, group_rate and group_rate.burst)


# -- places


def take_slots(commit: Commit, slots: Sequence[Slot]) -> None:
    """These have places now."""
    if slots:
        commit.db.send("insert_slots", *_slots(slots))


def free_slots(commit: Commit, slots: Sequence[Slot]) -> None:
    """These have no places any more; nobody is let go for that."""
    if slots:
        commit.db.send("delete_slots", *_slots(slots))


def _slots(slots: Sequence[Slot]) -> tuple[Ints, Blobs, Ints]:
    return Ints(q for q, _, _ in slots), Blobs(group for _, group, _ in slots), Ints(seq for _, _, seq in slots)


# -- going on


def admit(commit: Commit, waiting: Sequence[Waiting], limits: Limits | None = None) -> list[int]:
    """`start`, except for those of whose group all places are taken: held until one is free.

    Who has kept its place through a retry goes on in it; where groups keep order it may need a token for that.
    ``limits`` as in `known_lanes`.
    """
    if not any(message.group is not None for message, _, _ in waiting):
        return start(commit, waiting)
    now = commit.now
    groups = known_groups(
        commit, {(message.q, message.group) for message, _, _ in waiting if message.group is not None}, limits
    )
    held: list[tuple[MessageRow, int | None, bytes | None, bytes]] = []
    going: list[Waiting] = []
    slots: list[Slot] = []
    for message, run_at, lease in waiting:
        group = None if message.group is None else groups[message.q, message.group]
        later = run_at is not None and run_at > now
        if group is None or (later and group.limits.slots != ORDERED):
            going.append((message, run_at, lease))
        elif message.seq in group.seqs:
            going.append((message, group.due(now, 1, run_at) if group.limits.slots == ORDERED else run_at, lease))
        elif not group.room:
            held.append((message, run_at, message.group, b"group"))
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


def step_back(commit: Commit, messages: Iterable[MessageRow]) -> None:
    """Messages will be tried again later: their places are others' meanwhile, where groups need not keep order."""
    grouped = [message for message in messages if message.group is not None]
    if grouped:
        names = {(message.q, message.group) for message in grouped if message.group is not None}
        groups = known_groups(commit, names, group_rates=False)
        left = [message for message in grouped if groups[message.q, message.group or b""].limits.slots != ORDERED]
        leave_groups(commit, ((message.q, message.group, message.seq) for message in left))


def leave_groups(commit: Commit, over: Iterable[tuple[int, bytes | None, int]]) -> None:
    """(q, lane, seq) that have ended: the next of each group go from held to ready, in this same commit."""
    ends = [(q, group, seq) for q, group, seq in over if group is not None]
    if not ends:
        return
    _lock(commit, ((q, group) for q, group, _ in ends))
    next_: list[Waiting] = []
    has_group_rate: list[Named] = []
    for seq, q, attempts, stamp, own, group, *columns, run_at in commit.db.rows(
        "release_slots", *_slots(ends), MOST_FREED
    ):
        if seq is None:
            has_group_rate.append((q, group))
        else:
            next_.append((MessageRow(seq, q, attempts, stamp, own, group, *columns), run_at, None))
    _let_go(commit, next_)
    if has_group_rate:
        fill(commit, known_groups(commit, has_group_rate))


def fill(commit: Commit, groups: dict[Named, Group]) -> None:
    """Let go who waits for a place of these groups, which have a pace: each when there is a token for it."""
    open_ = [(q, name, group.room) for (q, name), group in sorted(groups.items()) if group.room]
    if not open_:
        return
    next_: list[Waiting] = []
    for *columns, run_at in commit.db.rows("next_in_group", *_slots(open_)):
        message = MessageRow(*columns)
        group = groups[message.q, message.group or b""]
        group.seqs.add(message.seq)
        next_.append((message, group.due(commit.now, group.waiting, run_at), None))
    _let_go(commit, next_)


def _let_go(commit: Commit, next_: Sequence[Waiting]) -> None:
    commit.count_all((message for message, _, _ in next_), HELD, -1)
    take_slots(
        commit, [(message.q, message.group, message.seq) for message, _, _ in next_ if message.group is not None]
    )
    for (message, _, _), state in zip(next_, start(commit, next_), strict=True):
        commit.note("free", state, message)
