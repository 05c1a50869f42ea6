"""sweep: what time alone brings about. Promote what is due, reap leases that ran out, end what is past its time.

Contract: at most ``limit`` of each per commit; a message is moved once, whoever sweeps. Claim does it first too, so
nobody waits for a keeper. One commit sweeps at a time; the others go on without.

Whose message it is has nothing to do with who sweeps. So nobody waits here for what a transaction has locked, which may
be open for long: it is left, and looked at again a moment later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tampu.engines.encoding import CANCELLED, DEAD, DELAYED, LEASED, READY
from tampu.engines.port import Sweep, Swept
from tampu.engines.sql.commit import Commit, unpack_claim
from tampu.engines.sql.db import Ints, text
from tampu.engines.sql.finish import Failed, dead_letter, end, expire, write_failures
from tampu.engines.sql.group_rates import coming_back
from tampu.engines.sql.groups import admit
from tampu.engines.sql.indexes import enter_delayed, enter_ready, restore_marks, withdraw
from tampu.engines.sql.locks import fair_lock, group_lock, key_lock
from tampu.engines.sql.message_row import MessageRow
from tampu.model.errors import TampuError
from tampu.model.journal import lease_end
from tampu.model.message import unpack_body
from tampu.model.rank import FAIR
from tampu.model.reasons import LEASE_EXPIRED
from tampu.model.times import SECOND

_CLAIMS = 50
"""Claims that are looked at together."""
_MOMENT = SECOND // 2
"""What was locked is looked at again after this."""
_ASIDE = SECOND // 20
"""Keepers who meet another sweeper look again after this."""
_LONG = 2 * SECOND
"""The same, when somebody had to be waited for all the same, and everything was undone."""


class Done(NamedTuple):
    moved: int = 0
    more: bool = False
    """There may be more: the limit was reached."""
    ours: bool = True
    """Nobody else was sweeping."""


class _Moving(NamedTuple):
    """A message that is to be moved, and what of others' that touches."""

    message: MessageRow
    placed: bool
    """Places or tokens of its group."""
    keyed: bool
    """The row of its key."""
    waits: bool
    """The turns of groups: it will be ready."""


class _Leased(NamedTuple):
    """A lease that may have run out."""

    message: MessageRow
    lease: int
    worker: bytes | None
    cancel: bool
    """Its worker was asked to stop."""
    until: int
    has_group_rate: bool
    """Its group has a rate."""

    @property
    def place(self) -> tuple[int, int]:
        return self.message.seq, self.lease

    @property
    def ends(self) -> bool:
        """If it was not settled in time, the message is not given out again."""
        return self.cancel or self.message.attempts >= self.message.max_attempts

    @property
    def leaves(self) -> bool:
        """The slots of its group change, or their tokens."""
        return self.ends or self.has_group_rate


def sweep(commit: Commit, calls: Sequence[Sweep]) -> list[Swept | TampuError]:
    done, now = sweep_due(commit, max(call.limit for call in calls)), commit.now
    times = zip(commit.db.row("select_next_due"), commit.registry.rests, strict=True)
    next_us = min(
        (rest if at <= now and _rests(rest, now) else at for at, rest in times if at is not None), default=None
    )
    if next_us is not None and not done.ours:
        next_us = max(next_us, now + _ASIDE)
    return [Swept(done.moved, next_us)] * len(calls)


def rest(commit: Commit) -> None:
    """This commit could not sweep; the next ones do not try for a while."""
    commit.registry.rests = [commit.now + _LONG] * 3


def _rests(until: int, now: int) -> bool:
    """Is it too soon to look again? A time far ahead was of a clock that has gone back since."""
    return now < until <= now + _LONG


def sweep_due(commit: Commit, limit: int) -> Done:
    now, registry = commit.now, commit.registry
    due = [
        at is not None and at <= now and not _rests(rest, now)
        for at, rest in zip(commit.next, registry.rests, strict=True)
    ]
    if not any(due):
        return Done()
    commit.swept = True
    ours, *_ = commit.db.row("begin_sweep")
    moved, more, locked = 0, False, []
    for kind, work in _WORKS if ours else ():
        if due[kind]:
            count, seen = work(commit, limit)
            moved += count
            more = more or seen >= limit
            if not seen:
                locked.append(kind)
    if locked:  # or somebody swept while we began
        times = commit.db.row("select_next_due")
        for kind in locked:
            if times[kind] is not None and times[kind] <= now:
                registry.rests[kind] = now + _MOMENT
    commit.db.send("end_sweep")
    return Done(moved, more, bool(ours))


def _promote(commit: Commit, limit: int) -> tuple[int, int]:
    due = [(MessageRow(*columns), lease) for *columns, lease in commit.db.rows("lock_due_delayed", commit.now, limit)]
    moving = [_Moving(message, placed=True, keyed=False, waits=True) for message, _ in due if _entangled(message)]
    locked = _locked(commit, moving)
    _postpone(commit, [message.seq for message, _ in due if message.seq in locked])
    out = [(message, lease) for message, lease in due if message.seq not in locked]
    messages = [message for message, _ in out]
    commit.db.send("delete_delayed", Ints(message.seq for message in messages))
    commit.count_all(messages, DELAYED, -1)
    waiting = [(message, None, lease) for message, lease in out]
    for message, state in zip(messages, admit(commit, waiting), strict=True):
        commit.note("promote", state, message)
    return len(out), len(due)


def _postpone(commit: Commit, seqs: Sequence[int]) -> None:
    """Delays that are over, of messages that can not go yet: away from the front, where they would hide others."""
    if seqs:
        times = range(commit.now + _MOMENT, commit.now + _MOMENT + len(seqs))
        commit.db.send("set_run_at", Ints(seqs), Ints(times))
        commit.falls_due(times[0])


def _entangled(message: MessageRow) -> bool:
    """Has a message anything to do with others: a group, a key, turns?"""
    return message.group is not None or message.named or message.rank == FAIR


def _locked(commit: Commit, moving: Sequence[_Moving]) -> set[int]:
    """Which of these somebody else keeps from being moved; what the others need is locked then, for this commit."""
    if not moving:
        return set()
    named = [one.message.seq for one in moving if one.keyed and one.message.named]
    bodies = dict(commit.db.rows("select_bodies", Ints(named))) if named else {}
    needs: dict[int, set[bytes]] = {one.message.seq: set() for one in moving}
    for message, leaves, _, waits in moving:
        placed = leaves and message.group is not None
        turns = message.rank == FAIR and (waits or placed)
        if placed or turns or message.seq in bodies:
            queue = commit.registry.name(commit.db, message.q)
            if placed:
                needs[message.seq].add(group_lock(queue, message.group or b""))
            if turns:
                needs[message.seq].add(fair_lock(*queue))
            if message.seq in bodies:
                needs[message.seq].add(key_lock(*queue, unpack_body(bodies[message.seq]).key or ""))
    had = commit.locks.try_take(name for names in needs.values() for name in names)
    return {seq for seq, names in needs.items() if not names <= had}


def _reap(commit: Commit, limit: int) -> tuple[int, int]:
    """Claims whose time has come, until so many messages were looked at; of the last one perhaps only a part."""
    seen = moved = 0
    while seen < limit:
        claims = commit.db.rows("lock_due_claims", commit.now, _CLAIMS)
        # In the order of the claims and, within one, of its messages: so they come back.
        order: dict[tuple[int, int], int] = {}
        gone = []
        for until, lease, packed in sorted(claims):
            if seen >= limit:
                break
            seqs = unpack_claim(packed)
            some = seqs[: limit - seen]
            gone.append((until, lease))
            seen += len(some)
            order.update(((seq, lease), place) for place, seq in enumerate(some, len(order)))
            if len(some) < len(seqs):
                commit.watch_rest(until, lease, seqs[len(some) :])
        commit.db.send("delete_reaped_claims", Ints(until for until, _ in gone), Ints(lease for _, lease in gone))
        moved += _look(commit, order)
        if len(claims) < _CLAIMS:
            break
    return moved, seen


def _look(commit: Commit, order: dict[tuple[int, int], int]) -> int:
    """Leases that may have run out, by (seq, lease) in the order they come back in; how many have."""
    if not order:
        return 0
    watched = sorted(order)
    rows = commit.db.rows("lock_expired_leases", *map(Ints, zip(*watched, strict=True)))
    leases = [
        _Leased(MessageRow(*columns), lease, worker, bool(cancel), until, group_rate is not None)
        for *columns, lease, worker, cancel, until, group_rate in rows
    ]
    leases.sort(key=lambda one: order[one.place])
    found = {one.place for one in leases}
    missed = [place for place in watched if place not in found]
    if missed:
        # Settled, mostly. Those that are not: somebody has locked them, to settle or to extend them.
        _look_again(commit, commit.db.rows("select_busy_leases", *map(Ints, zip(*missed, strict=True))))
    over = [one for one in leases if one.until <= commit.now]
    moving = [_Moving(one.message, one.leaves, not one.ends, not one.ends) for one in over if _entangled(one.message)]
    locked = _locked(commit, moving)
    _look_again(commit, [one.place for one in over if one.message.seq in locked])
    out = [one for one in over if one.message.seq not in locked]
    _keep_watching(commit, [one for one in leases if one.until > commit.now])
    _return(commit, out)
    return len(out)


def _look_again(commit: Commit, leases: Sequence[tuple[int, int]]) -> None:
    """(seq, lease) that somebody has locked, or whose group: the reaper looks at them a moment later."""
    by_lease: dict[int, list[int]] = {}
    for seq, lease in leases:
        by_lease.setdefault(lease, []).append(seq)
    commit.watch([(commit.now + _MOMENT, lease, seqs) for lease, seqs in by_lease.items()])


def _keep_watching(commit: Commit, leases: Sequence[_Leased]) -> None:
    """Leases that were extended: of each claim, what is left is looked at again when the first of it may run out."""
    by_lease: dict[int, list[_Leased]] = {}
    for one in leases:
        by_lease.setdefault(one.lease, []).append(one)
    commit.watch(
        [(min(one.until for one in kept), lease, [one.message.seq for one in kept]) for lease, kept in by_lease.items()]
    )


def _return(commit: Commit, leases: Sequence[_Leased]) -> None:
    """Messages whose worker is gone: back of the queue, or dead when that was the last attempt.

    None of it is the lease's own doing, so no trace of it stays: a late settle must not be taken for a repeated one.
    """
    if not leases:
        return
    commit.db.send("delete_leases", Ints(one.message.seq for one in leases))
    commit.count_all((one.message for one in leases), LEASED, -1)
    write_failures(commit, [Failed(one.message, LEASE_EXPIRED, one.worker) for one in leases])
    back, over, dead = [], [], []
    for one in leases:
        message, worker, ended = one.message, text(one.worker), lease_end(one.until)
        if one.cancel:
            over.append(message)
            commit.note("cancel", CANCELLED, message, worker, ended)
        elif message.attempts >= message.max_attempts:
            dead.append((message, None, LEASE_EXPIRED))
            commit.note("reap", DEAD, message, worker, ended)
        else:
            back.append((message, worker, one.has_group_rate, ended))
    times = coming_back(commit, [(message, has_group_rate) for message, _, has_group_rate, _ in back])
    at_once = [message for (message, *_), at in zip(back, times, strict=True) if at is None]
    later = [(message, at) for (message, *_), at in zip(back, times, strict=True) if at is not None]
    for (message, worker, _, ended), at in zip(back, times, strict=True):
        commit.note("reap", READY if at is None else DELAYED, message, worker, ended)
    enter_ready(commit, at_once, [None] * len(at_once))
    enter_delayed(commit, [message for message, _ in later], [at for _, at in later], [None] * len(later))
    restore_marks(commit, (message for message, *_ in back))
    end(commit, CANCELLED, over, [None] * len(over))
    dead_letter(commit, dead)


def _expire(commit: Commit, limit: int) -> tuple[int, int]:
    seqs = [seq for (seq,) in commit.db.rows("select_expired", commit.now, limit)]
    waiting = [MessageRow(*row) for row in commit.db.rows("lock_waiting", Ints(seqs))] if seqs else []
    moving = [_Moving(message, placed=True, keyed=True, waits=False) for message in waiting if _entangled(message)]
    free = {message.seq for message in waiting} - _locked(commit, moving)
    found = withdraw(commit, [seq for seq in seqs if seq in free])
    messages = [found[seq] for seq in seqs if seq in found]
    expire(commit, messages)
    return len(messages), len(messages)


_WORKS: tuple[tuple[int, Callable[[Commit, int], tuple[int, int]]], ...] = ((2, _expire), (1, _reap), (0, _promote))
"""By their place among the times of what is due; in this order, what has expired is not promoted before."""
