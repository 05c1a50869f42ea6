"""Group rates: claims spend tokens, returned messages wait for a token, and a changed rate gives new times.

`tampu.engines.groups` explains the rule. Every function here locks its groups first, so two commits never read the
tokens of a group at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.groups import ORDERED, Limits
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Values
from tampu.engines.sql.locks import group_lock
from tampu.engines.sql.rules.groups import GroupKey, Slot, fill, free_slots, lock_groups, take_slots
from tampu.engines.sql.rules.message_row import MessageRow


def spend(commit: Commit, q: int, claimed: Sequence[tuple[bytes | None, int]]) -> None:
    """(group, seq) were claimed: each costs a token of its group, and the group's next messages get their times."""
    by_group: dict[GroupKey, list[int]] = {}
    for group, seq in claimed:
        if group is not None:
            by_group.setdefault((q, group), []).append(seq)
    groups = {
        name: state for name, state in lock_groups(commit, by_group).items() if state.limits.group_rate is not None
    }
    if not groups:
        return
    commit.begin_record_group()  # the next claim of this commit may take messages that are admitted here
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


def _retry_times(commit: Commit, messages: Sequence[MessageRow]) -> list[int | None]:
    """When messages whose leases ended may be claimed again; None: at once. Each needs another token.

    If others already wait for a full burst, a message gives up its slot and asks for one when its time has come.
    """
    groups = lock_groups(commit, {(message.q, message.group) for message in messages if message.group is not None})
    returned = {(message.q, message.group or b"", message.seq) for message in messages}
    before = {(*name, seq) for name, state in groups.items() for seq in state.seqs}
    for (q, name), state in groups.items():
        if state.limits.group_rate is not None:
            state.seqs.difference_update({seq for owner, group, seq in returned if (owner, group) == (q, name)})
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


def token_times(commit: Commit, messages: Sequence[tuple[MessageRow, bool]]) -> dict[int, int]:
    """(message, whether its group has a rate), all to be ready again: by seq, until when those without a token wait."""
    limited = [message for message, has_group_rate in messages if has_group_rate]
    times = _retry_times(commit, limited) if limited else ()
    return {message.seq: at for message, at in zip(limited, times, strict=True) if at is not None}


def retime_ahead(commit: Commit, limit: int) -> None:
    """Correct the times of groups that a clock which was ahead postponed. Groups that others have locked wait."""
    found = [(q, state) for q, state in commit.db.rows("select_rates_ahead", commit.now, limit)]
    if not found:
        return
    locks = {(q, state): group_lock(commit.registry.name(commit.db, q), state) for q, state in found}
    had = commit.locks.try_take(locks.values())
    groups = lock_groups(commit, [name for name in found if locks[name] in had])
    for q in {q for q, _ in groups}:
        names = [name for owner, name in groups if owner == q]
        retime(commit, q, names, groups[q, names[0]].limits)
    if groups:
        _keep(commit, {name: state.spent for name, state in groups.items()})


def retime(commit: Commit, q: int, names: Sequence[bytes], limits: Limits) -> None:
    """Give new times to messages that wait for a token, after the rate or the clock has changed. Not in ordered groups:
    there a message may be delayed for another reason, such as a backoff, and nothing tells which."""
    if limits.slots == ORDERED or not names:
        return
    groups = lock_groups(commit, {(q, name) for name in names})
    waits: dict[bytes, list[int]] = {}
    spent: dict[bytes, int] = {}
    for name, _, seq, until in sorted(
        commit.db.rows("select_token_waits", q, Values("b", [(group,) for group in sorted(names)]))
    ):
        waits.setdefault(name, []).append(seq)
        spent[name] = until if limits.group_rate is None else min(until, limits.group_rate.most(commit.now))
    times: list[tuple[int, int]] = []
    for name, seqs in waits.items():
        first = groups[q, name].waiting - len(seqs) + 1
        for place, seq in enumerate(seqs, first):
            due = commit.now if limits.group_rate is None else limits.group_rate.due(spent[name], commit.now, place)
            times.append((seq, max(due, commit.now)))
    if times:
        _keep(commit, {(q, name): until for name, until in spent.items()})
        commit.db.send("set_run_at", Values("ii", times))
        commit.falls_due(min(at for _, at in times))


def _keep(commit: Commit, spent: dict[GroupKey, int]) -> None:
    rows = sorted((q, group, until) for (q, group), until in spent.items())
    commit.db.send("upsert_group_rates", Values("ibi", rows))
