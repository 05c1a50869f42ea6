"""The pace of groups: what a claim costs, when a message that comes back may go again, and a pace that changes.

What it means is in `tampu.engines.groups`. Everything here has the locks of its groups first, so of two commits that
look at the tokens of a group one comes after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.groups import ORDERED, Limits
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs, Ints
from tampu.engines.sql.groups import Named, Slot, fill, free_slots, known_groups, take_slots
from tampu.engines.sql.locks import group_lock
from tampu.engines.sql.message_row import MessageRow


def spend(commit: Commit, q: int, claimed: Sequence[tuple[bytes | None, int]]) -> None:
    """(lane, seq) were claimed: each costs a token of its group, and the next ones of the group get their times."""
    by_group: dict[Named, list[int]] = {}
    for group, seq in claimed:
        if group is not None:
            by_group.setdefault((q, group), []).append(seq)
    groups = {
        name: state for name, state in known_groups(commit, by_group).items() if state.limits.group_rate is not None
    }
    if not groups:
        return
    commit.begin_record_group()  # the next claim of this commit may take what is set free here
    left: list[Slot] = []
    for name, state in groups.items():
        assert state.limits.group_rate is not None
        state.spent = state.limits.group_rate.spend(state.spent, commit.now, len(by_group[name]))
        if state.limits.keeps_slot:
            state.claimed.update(state.seqs.intersection(by_group[name]))
        else:
            left += [(*name, seq) for seq in by_group[name] if seq in state.seqs]
            state.seqs.difference_update(by_group[name])
            state.claimed.difference_update(by_group[name])
    _keep(commit, {name: state.spent for name, state in groups.items()})
    free_slots(commit, left)
    fill(commit, groups)


def again(commit: Commit, messages: Sequence[MessageRow]) -> list[int | None]:
    """When messages whose leases are over may be claimed again; None: at once. Each needs another token.

    While others wait for all there is, a message has no place, and asks for one when that time has come.
    """
    groups = known_groups(commit, {(message.q, message.group) for message in messages if message.group is not None})
    came = {(message.q, message.group or b"", message.seq) for message in messages}
    before = {(*name, seq) for name, state in groups.items() for seq in state.seqs}
    for (q, name), state in groups.items():
        if state.limits.group_rate is not None:
            state.seqs.difference_update({seq for owner, group, seq in came if (owner, group) == (q, name)})
    times: list[int | None] = []
    for message in messages:
        own = None if message.group is None else groups[message.q, message.group]
        group_rate = None if own is None else own.limits.group_rate
        if own is None or group_rate is None:
            times.append(None)
            continue
        place = own.waiting + 1
        if place <= group_rate.burst:
            own.seqs.add(message.seq)
        due = group_rate.due(own.spent, commit.now, place)
        times.append(due if due > commit.now else None)
    after = {(*name, seq) for name, state in groups.items() for seq in state.seqs}
    free_slots(commit, sorted(before - after))
    take_slots(commit, sorted(after - before))
    return times


def coming_back(commit: Commit, messages: Sequence[tuple[MessageRow, bool]]) -> list[int | None]:
    """`again` of those of a group with a pace; the others are ready at once."""
    has_group_rate = [message for message, has_group_rate in messages if has_group_rate]
    times = iter(again(commit, has_group_rate) if has_group_rate else ())
    return [next(times) if has_group_rate else None for _, has_group_rate in messages]


def retime_ahead(commit: Commit, limit: int) -> None:
    """Groups that a clock which was ahead has put off get the times of now; those that others have locked, later."""
    found = [(q, state) for q, state in commit.db.rows("select_rates_ahead", commit.now, limit)]
    if not found:
        return
    locks = {(q, state): group_lock(commit.registry.name(commit.db, q), state) for q, state in found}
    had = commit.locks.try_take(locks.values())
    groups = known_groups(commit, [name for name in found if locks[name] in had])
    for q in {q for q, _ in groups}:
        names = [name for owner, name in groups if owner == q]
        retime(commit, q, names, groups[q, names[0]].limits)
    if groups:
        _keep(commit, {name: state.spent for name, state in groups.items()})


def retime(commit: Commit, q: int, names: Sequence[bytes], limits: Limits) -> None:
    """The pace has changed, or the clock: who waits for a token gets a new time. Where groups keep order, some wait for
    another reason, and nobody can tell who: they stay as they are."""
    if limits.slots == ORDERED or not names:
        return
    groups = known_groups(commit, {(q, name) for name in names})
    waits: dict[bytes, list[int]] = {}
    spent: dict[bytes, int] = {}
    for name, _, seq, until in sorted(commit.db.rows("select_token_waits", q, Blobs(sorted(names)))):
        waits.setdefault(name, []).append(seq)
        spent[name] = until if limits.group_rate is None else min(until, limits.group_rate.most(commit.now))
    times: list[tuple[int, int]] = []
    for name, seqs in waits.items():
        first = groups[q, name].waiting - len(seqs) + 1
        for place, seq in enumerate(seqs, first):
            due = commit.now if limits.group_rate is None else limits.group_rate.due(spent[name], commit.now, place)
            times.append((max(due, commit.now), seq))
    if times:
        _keep(commit, {(q, name): until for name, until in spent.items()})
        commit.db.send("set_run_at", Ints(seq for _, seq in times), Ints(at for at, _ in times))
        commit.falls_due(min(times)[0])


def _keep(commit: Commit, spent: dict[Named, int]) -> None:
    names = sorted(spent)
    commit.db.send(
        "upsert_group_rates",
        Ints(q for q, _ in names),
        Blobs(state for _, state in names),
        Ints(spent[name] for name in names),
    )
