"""sweep: promote due messages, reap expired leases, expire messages.

Contract: at most ``limit`` of each kind per commit; a message is moved once, whichever process sweeps. Claim sweeps
first, so it does not depend on maintenance. One commit sweeps at a time; others skip the sweep.

A sweep touches messages that have nothing to do with its caller. So it never waits for rows that another transaction
has locked, which may stay open for long: it skips them and tries again a moment later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tampu.engines.encoding import CANCELLED, DEAD, DELAYED, LEASED, READY
from tampu.engines.port import Sweep, Swept
from tampu.engines.sql.commit import Commit, unpack_claim
from tampu.engines.sql.db import Ints, Values, text
from tampu.engines.sql.locks import fair_lock, group_lock, key_lock
from tampu.engines.sql.rules.group_rates import token_times
from tampu.engines.sql.rules.groups import admit
from tampu.engines.sql.rules.indexes import withdraw
from tampu.engines.sql.rules.message_row import MessageRow, Waiting
from tampu.engines.sql.rules.moves import Failed, Move, expiry_moves, write_failures, write_moves
from tampu.model.errors import TampuError
from tampu.model.journal import lease_end
from tampu.model.message import unpack_body
from tampu.model.rank import FAIR
from tampu.model.reasons import LEASE_EXPIRED
from tampu.model.times import SECOND

_CLAIMS = 50
"""Claims that are checked together."""
_MOMENT = SECOND // 2
"""Locked messages are tried again after this time."""
_ASIDE = SECOND // 20
"""Maintenance that finds another process sweeping tries again after this time."""
_LONG = 2 * SECOND
"""Pause after a sweep that had to wait for a lock all the same and was rolled back."""


class Done(NamedTuple):
    moved: int = 0
    more: bool = False
    """The limit was reached: there may be more."""
    ours: bool = True
    """False if another process was sweeping, so that nothing was done."""


class _Moving(NamedTuple):
    """A message to move, and which shared rows that changes."""

    message: MessageRow
    placed: bool
    """Slots or tokens of its group."""
    keyed: bool
    """The row of its key."""
    waits: bool
    """The turns of fair groups, because the message will be ready."""


class _Leased(NamedTuple):
    """A lease that may have expired."""

    message: MessageRow
    lease: int
    worker: bytes | None
    cancel: bool
    """Its worker was asked to stop."""
    until: int
    has_group_rate: bool
    """Its group has a rate."""

    @property
    def key(self) -> tuple[int, int]:
        return self.message.seq, self.lease

    @property
    def ends(self) -> bool:
        """True if the message is not delivered again once this lease has expired."""
        return self.cancel or self.message.attempts >= self.message.max_attempts

    @property
    def leaves(self) -> bool:
        """True if expiring the lease changes slots or tokens of its group."""
        return self.ends or self.has_group_rate


def sweep(commit: Commit, calls: Sequence[Sweep]) -> list[Swept | TampuError]:
    done, now = sweep_due(commit, max(call.limit for call in calls)), commit.now
    times = zip(commit.db.row("select_next_due"), commit.registry.sweep_again_at, strict=True)
    next_us = min(
        (pause if at <= now and _too_soon(pause, now) else at for at, pause in times if at is not None), default=None
    )
    if next_us is not None and not done.ours:
        next_us = max(next_us, now + _ASIDE)
    return [Swept(done.moved, next_us)] * len(calls)


def pause_sweeps(commit: Commit) -> None:
    """This commit could not sweep: the next ones do not try for a while."""
    commit.registry.sweep_again_at = [commit.now + _LONG] * 3


def _too_soon(until: int, now: int) -> bool:
    """True if it is too early to sweep again. A time far ahead is ignored: the clock has gone back since."""
    return now < until <= now + _LONG


def sweep_due(commit: Commit, limit: int) -> Done:
    now, registry = commit.now, commit.registry
    due = [
        at is not None and at <= now and not _too_soon(pause, now)
        for at, pause in zip(commit.next, registry.sweep_again_at, strict=True)
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
    if locked:  # or another process has swept meanwhile: look again
        times = commit.db.row("select_next_due")
        for kind in locked:
            if times[kind] is not None and times[kind] <= now:
                registry.sweep_again_at[kind] = now + _MOMENT
    commit.db.send("end_sweep")
    return Done(moved, more, bool(ours))


def _promote(commit: Commit, limit: int) -> tuple[int, int]:
    due = [(MessageRow(*row), marker) for *row, marker in commit.db.rows("lock_due_delayed", commit.now, limit)]
    locked = _locked(commit, [_Moving(message, placed=True, keyed=False, waits=True) for message, _ in due])
    _write_promoted(commit, [(message, None, marker) for message, marker in due if message.seq not in locked])
    _postpone(commit, [message.seq for message, _ in due if message.seq in locked])
    return len(due) - len(locked), len(due)


def _write_promoted(commit: Commit, waiting: Sequence[Waiting]) -> None:
    messages = [message for message, _, _ in waiting]
    commit.db.send("delete_delayed", Ints(message.seq for message in messages))
    commit.count_all(messages, DELAYED, -1)
    for message, state in zip(messages, admit(commit, waiting), strict=True):
        commit.note("promote", state, message)


def _postpone(commit: Commit, seqs: Sequence[int]) -> None:
    """Delay messages that cannot move yet a little more: at the front of the index they would hide others."""
    if seqs:
        times = range(commit.now + _MOMENT, commit.now + _MOMENT + len(seqs))
        commit.db.send("set_run_at", Values("ii", list(zip(seqs, times, strict=True))))
        commit.falls_due(times[0])


def _locked(commit: Commit, moving: Sequence[_Moving]) -> set[int]:
    """Take the locks these messages need, without waiting; returns the seqs whose locks others have.

    Only messages with a group, a key or a fair turn touch rows that others may change too.
    """
    moving = [row for row in moving if row.message.group is not None or row.message.named or row.message.rank == FAIR]
    if not moving:
        return set()
    named = [row.message.seq for row in moving if row.keyed and row.message.named]
    bodies = dict(commit.db.rows("select_bodies", Ints(named))) if named else {}
    needs: dict[int, set[bytes]] = {row.message.seq: set() for row in moving}
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
    """Check due claims, at most ``limit`` messages; of the last claim perhaps only a part. (moved, checked)."""
    seen = moved = 0
    while seen < limit:
        claims = commit.db.rows("lock_due_claims", commit.now, _CLAIMS)
        # Messages return in the order of their claims and, within a claim, in the order they were claimed.
        order: dict[tuple[int, int], int] = {}
        gone = []
        for until, lease, packed in sorted(claims):
            if seen >= limit:
                break
            seqs = unpack_claim(packed)
            some = seqs[: limit - seen]
            gone.append((until, lease))
            seen += len(some)
            order.update(((seq, lease), key) for key, seq in enumerate(some, len(order)))
            if len(some) < len(seqs):
                commit.schedule_reap_rest(until, lease, seqs[len(some) :])
        commit.db.send("delete_reaped_claims", Values("ii", gone))
        moved += _reap_leases(commit, order)
        if len(claims) < _CLAIMS:
            break
    return moved, seen


def _reap_leases(commit: Commit, order: dict[tuple[int, int], int]) -> int:
    """Return the messages whose leases have expired; how many. ``order``: (seq, lease) to the order of return."""
    if not order:
        return 0
    keys = sorted(order)
    rows = commit.db.rows("lock_expired_leases", Values("ii", keys))
    leases = [
        _Leased(MessageRow(*row), lease, worker, bool(cancel), until, group_rate is not None)
        for *row, lease, worker, cancel, until, group_rate in rows
    ]
    leases.sort(key=lambda row: order[row.key])
    found = {row.key for row in leases}
    missed = [key for key in keys if key not in found] if found else keys
    # Most of them are settled. The others are locked by somebody who settles or extends them now.
    busy = commit.db.rows("select_busy_leases", Values("ii", missed)) if missed else []
    over = [row for row in leases if row.until <= commit.now]
    locked = _locked(commit, [_Moving(row.message, row.leaves, not row.ends, not row.ends) for row in over])
    out = [row for row in over if row.message.seq not in locked]
    later = [*busy, *(row.key for row in over if row.message.seq in locked)]
    again = [(commit.now + _MOMENT, lease, seq) for seq, lease in later]
    again += [(row.until, row.lease, row.message.seq) for row in leases if row.until > commit.now]  # they were extended
    commit.schedule_reap(_by_claim(again))
    _write_reaped(commit, out, _reap_moves(commit, out))
    return len(out)


def _by_claim(leases: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, list[int]]]:
    """(until, lease, seq) of leases to check again: those of each claim together, when the first may have expired."""
    claims: dict[int, list[tuple[int, int]]] = {}
    for until, lease, seq in leases:
        claims.setdefault(lease, []).append((until, seq))
    return [(min(until for until, _ in rows), lease, [seq for _, seq in rows]) for lease, rows in claims.items()]


def _reap_moves(commit: Commit, leases: Sequence[_Leased]) -> list[Move]:
    """Decide where messages go whose lease has expired: to the back of the queue, or dead after the last attempt.

    They get no settle marker: a late settle must not look like a repeated one.
    """
    tokens = token_times(commit, [(row.message, row.has_group_rate) for row in leases if not row.ends])
    moves = []
    for row in leases:
        message, worker, ended = row.message, text(row.worker), lease_end(row.until)
        at = tokens.get(message.seq)
        if row.cancel:
            moves.append(Move(message, CANCELLED, "cancel", worker=worker, detail=ended))
        elif row.ends:
            moves.append(Move(message, DEAD, "reap", reason=LEASE_EXPIRED, worker=worker, detail=ended))
        else:
            state = READY if at is None else DELAYED
            moves.append(Move(message, state, "reap", at=at, for_token=True, worker=worker, detail=ended))
    return moves


def _write_reaped(commit: Commit, leases: Sequence[_Leased], moves: Sequence[Move]) -> None:
    if leases:
        commit.db.send("delete_leases", Ints(row.message.seq for row in leases))
        commit.count_all((row.message for row in leases), LEASED, -1)
        write_failures(commit, [Failed(row.message, LEASE_EXPIRED, row.worker) for row in leases])
        write_moves(commit, moves)


def _expire(commit: Commit, limit: int) -> tuple[int, int]:
    seqs = [seq for (seq,) in commit.db.rows("select_expired", commit.now, limit)]
    waiting = [MessageRow(*row) for row in commit.db.rows("lock_waiting", Ints(seqs))] if seqs else []
    locked = _locked(commit, [_Moving(message, placed=True, keyed=True, waits=False) for message in waiting])
    free = {message.seq for message in waiting} - locked
    found = withdraw(commit, [seq for seq in seqs if seq in free])
    messages = [found[seq] for seq in seqs if seq in found]
    write_moves(commit, expiry_moves(commit, messages))
    return len(messages), len(messages)


_WORKS: tuple[tuple[int, Callable[[Commit, int], tuple[int, int]]], ...] = ((2, _expire), (1, _reap), (0, _promote))
"""(index in `Commit.next`, function) in the order they run: expire comes first, so that nothing expired is promoted."""
