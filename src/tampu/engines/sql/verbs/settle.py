"""settle: end leases with ack, nack, reject or release.

Contract: one outcome per item. A receipt that is not the current lease changes nothing and gives LeaseLost. The only
exception is a repeated settle (same receipt, same verb): it gets the first answer again. A nack at max_attempts makes
the message dead; a requested cancel makes it cancelled.

The fence is the DELETE of the lease's row: whoever deletes it settles. Acks of one claim, which is what a batch worker
sends, are one statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tampu.engines.encoding import (
    CANCELLED,
    CODE,
    DEAD,
    DELAYED,
    DONE,
    HELD,
    LEASED,
    READY,
    STATES,
    pack_seqs,
    parse_receipt,
)
from tampu.engines.port import Settle, SettleItem
from tampu.engines.rules import delay, first_line, lost, settle_marker
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Db, Ints, Values, text
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.engines.sql.rules.group_rates import token_times
from tampu.engines.sql.rules.groups import leave_groups
from tampu.engines.sql.rules.message_row import MessageRow
from tampu.engines.sql.rules.moves import Failed, Move, write_failures, write_moves
from tampu.model import transitions
from tampu.model.errors import TampuError
from tampu.model.message import State
from tampu.model.outcome import Outcome
from tampu.model.reasons import RETRIES_EXHAUSTED, UNRECOVERABLE
from tampu.model.states import WAITING

LeaseKey = tuple[int, int, int]
"""(q, seq, lease)"""
_NUMBERS = re.compile(r"[0-9a-f]+(\n[0-9a-f]+)*\Z")


def _states_after(verb: str) -> set[int]:
    """The states that a settle can lead to. Instead of waiting again, a message may be cancelled on request."""
    states = transitions.after(verb)
    if not states.isdisjoint(WAITING):
        states |= transitions.after("cancel")
    return {CODE[state] for state in states if state is not None}


_STATES_AFTER = {verb: _states_after(verb) for verb in ("ack", "nack", "reject", "release")}


class EndedLease(NamedTuple):
    """A lease that the fence removed, and what to do with its message."""

    item: SettleItem
    message: MessageRow
    lease: int
    worker: bytes | None
    cancel: bool
    has_group_rate: bool
    """Its group has a rate."""


class Sent(NamedTuple):
    """Acks that were sent in the same round trip as the beginning of the commit."""

    q: int
    lease: int
    seqs: list[int]
    rows: Callable[[], list[Any]]
    until: int | None
    """``until`` of the claim's row, if these acks are all that is left of the claim."""
    missed: list[Any]
    """The rows that were acked, if some receipts were not current."""


def acks_of_one_claim(items: Sequence[SettleItem]) -> tuple[int, list[int]] | None:
    """(lease, seqs) if these are acks of one claim without results or repeats, as a batch worker sends; else None."""
    if any(item.verb != "ack" or item.result is not None for item in items):
        return None
    # All receipts have the same start and end. Parsing them as one string costs half as much as one by one.
    begin, end = f"{items[0].queue}/", f".{items[0].receipt.rpartition('.')[2]}"
    joined = "\n".join([item.receipt for item in items])
    if not (joined.startswith(begin) and joined.endswith(end)):
        return None
    between = joined[len(begin) : -len(end)].replace(f"{end}\n{begin}", "\n")
    if joined.count("\n") != len(items) - 1 or not _NUMBERS.match(f"{between}\n{end[1:]}"):
        return None
    seqs = [int(number, 16) for number in between.split("\n")]
    lease = int(end[1:], 16)
    if len(set(seqs)) < len(seqs) or max(seqs) >> 63 or lease >> 63:
        return None
    return lease, seqs


def send_ahead(db: Db, registry: QueueRegistry, call: Settle, now: int | None) -> Sent | None:
    """Send the only settle of a run ahead, if it has the acks of one claim."""
    if not call.items:
        return None
    q, found = registry.numbers.get((call.tenant, call.items[0].queue)), acks_of_one_claim(call.items)
    if q is None or found is None:
        return None
    lease, seqs = found
    until = registry.open_claims.until_if_complete(lease, len(seqs))
    rows = db.ahead("ack", Ints(seqs), lease, q, now, DONE, pack_seqs(seqs), until)
    return Sent(q, lease, seqs, rows, until, [])


def _ack_sent(commit: Commit, call: Settle, sent: Sent) -> list[Outcome] | None:
    """The outcomes if every receipt was current, which is the common case; else None, and `_settle` finds out which."""
    rows = sent.rows()
    if len(rows) < len(sent.seqs):
        sent.missed.extend(rows)
        return None
    _acked(commit, sent.q, sent.lease, rows, left=sent.until is not None)
    done = STATES[DONE]
    made = (
        {}
        if all(item.id for item in call.items)
        else {seq: commit.id(seq, stamp, own) for seq, _, stamp, own, _ in rows}
    )
    return [Outcome(item.id or made[seq], done) for item, seq in zip(call.items, sent.seqs, strict=True)]


def _acked(commit: Commit, q: int, lease: int, rows: list[Any], *, left: bool) -> None:
    """Count and journal acked messages of one claim. ``left``: the claim's own row was deleted too."""
    rows.sort()
    commit.settled(lease, len(rows), left=left)
    seqs, attempts, stamps, owns, groups = zip(*rows, strict=True)
    commit.count(q, LEASED, -len(rows))
    commit.ended(q, DONE, list(seqs))
    record = commit.record("ack", q, DONE)
    if any(owns):
        record.own.update({i: own for i, own in enumerate(owns, len(record.seqs)) if own is not None})
    record.extend(seqs, stamps, attempts)
    if any(group is not None for group in groups):
        leave_groups(commit, ((q, group, seq) for group, seq in zip(groups, seqs, strict=True)))


def settle(commit: Commit, calls: Sequence[Settle]) -> list[list[Outcome] | TampuError]:
    replies = _settle(commit, calls)
    for call, outcomes in zip(calls, replies, strict=True):
        wake(commit, call, outcomes)
    return list(replies)


def wake(commit: Commit, call: Settle, outcomes: Sequence[Outcome]) -> None:
    """Leases that ended let claims go on that wait for max_in_flight."""
    for queue, count in call.freed(outcomes).items():
        commit.became_ready(commit.queue(call.tenant, queue), count)


def _settle(commit: Commit, calls: Sequence[Settle]) -> list[list[Outcome]]:
    sent, commit.sent = commit.sent, None
    if sent is None and len(calls) == 1:
        sent = send_ahead(commit.db, commit.registry, calls[0], commit.now)
    if sent is not None:
        whole = _ack_sent(commit, calls[0], sent)
        if whole is not None:
            return [whole]
    work = _SettleBatch(commit, sent)
    keys = [[work.gather(call.tenant, item) for item in call.items] for call in calls]
    work.fence()
    work.apply()
    return [
        [work.outcome(call, item, key) for item, key in zip(call.items, found, strict=True)]
        for call, found in zip(calls, keys, strict=True)
    ]


class _SettleBatch:
    """All items of a commit: `gather` them, `fence` their leases, `apply` the outcomes, then read each `outcome`."""

    def __init__(self, commit: Commit, sent: Sent | None) -> None:
        self.commit = commit
        self._sent = sent
        self._first: dict[LeaseKey, SettleItem] = {}
        """The first item for each lease. Later items for the same lease in this commit come too late."""
        self._acks: dict[tuple[int, int], list[int]] = {}
        """Acks without a result, by (q, lease)."""
        self._others: dict[LeaseKey, SettleItem] = {}
        self._unleased: list[EndedLease] = []
        self._done: dict[LeaseKey, tuple[str, State, str | None]] = {}
        """(verb, state, id) of what was settled here."""
        self._settled_before: dict[tuple[int, int], list[tuple[int, str]]] = {}
        self._looked_up = False

    def gather(self, tenant: str, item: SettleItem) -> LeaseKey | TampuError:
        """Add an item; returns the lease that it is about."""
        try:
            seq, lease = parse_receipt(item.receipt)
        except TampuError as error:
            return error
        q = self.commit.registry.number(self.commit.db, tenant, item.queue)
        if q is None:
            return lost()
        key = (q, seq, lease)
        if key not in self._first:
            self._first[key] = item
            if item.verb == "ack" and item.result is None:
                self._acks.setdefault((q, lease), []).append(seq)
            else:
                self._others[key] = item
        return key

    def fence(self) -> None:
        db, done = self.commit.db, STATES[DONE]
        for (q, lease), seqs in list(self._acks.items()):
            if len(seqs) < 4 and len(self._acks) > 1:  # single acks of many claims: one statement for all
                self._others.update({(q, seq, lease): self._first[q, seq, lease] for seq in seqs})
                continue
            until = self.commit.registry.open_claims.until_if_complete(lease, len(seqs))
            if self._sent is not None:
                rows = self._sent.missed
            else:
                rows = db.rows("ack", Ints(seqs), lease, q, self.commit.now, DONE, pack_seqs(seqs), until)
            if not rows:
                continue
            _acked(self.commit, q, lease, rows, left=until is not None and len(rows) == len(seqs))
            for seq, _, stamp, own, _ in rows:
                known = self._first[q, seq, lease].id
                self._done[q, seq, lease] = ("ack", done, known or self.commit.id(seq, stamp, own))
        if self._others:
            wanted = sorted((seq, lease, q) for q, seq, lease in self._others)
            found: dict[LeaseKey, tuple[MessageRow, bytes | None, bool, bool]] = {}
            for *row, lease, worker, cancel, group_rate in db.rows("take_leases", Values("iii", wanted)):
                message = MessageRow(*row)
                found[message.q, message.seq, lease] = message, worker, cancel, group_rate is not None
            # In the order of the items: messages return to the queue in this order.
            for key, item in self._others.items():
                if key in found:
                    _, _, lease = key
                    message, worker, cancel, has_group_rate = found[key]
                    if item.max_attempts is not None:
                        message = message._replace(max_attempts=item.max_attempts)
                    self.commit.settled(lease, 1)
                    self._unleased.append(EndedLease(item, message, lease, worker, cancel, has_group_rate))

    def apply(self) -> None:
        """Decide where each message goes, and write it: acks, then releases, then failures."""
        commit = self.commit
        for verbs, decide in _DECISIONS:
            rows = [row for row in self._unleased if row.item.verb in verbs]
            if not rows:
                continue
            moves = decide(commit, rows)
            write_moves(commit, moves)
            for row, move in zip(rows, moves, strict=True):
                message = row.message
                commit.count(message.q, LEASED, -1)
                id = row.item.id or commit.id(message.seq, message.stamp, message.own)
                self._done[message.q, message.seq, row.lease] = (row.item.verb, STATES[move.state], id)

    # -- answers

    def outcome(self, call: Settle, item: SettleItem, key: LeaseKey | TampuError) -> Outcome:
        if not isinstance(key, tuple):
            return Outcome(None, None, key)
        done = self._done.get(key)
        if call.strict and (done is None or self._first[key] is not item):
            return Outcome(None, None, lost())
        if done is not None:
            verb, state, id = done
            return Outcome(id, state) if verb == item.verb else Outcome(None, None, lost())
        return self._repeated(item, key)

    def _repeated(self, item: SettleItem, key: LeaseKey) -> Outcome:
        """A repeated settle gets the first answer; any other one gets LeaseLost."""
        if not self._looked_up:
            self._looked_up = True
            self._find_settled()
        _, seq, lease = key
        for state, id in self._settled_before.get((seq, settle_marker(item.verb, lease)), ()):
            if state in _STATES_AFTER[item.verb]:
                return Outcome(id, STATES[state])
        return Outcome(None, None, lost())

    def _find_settled(self) -> None:
        missed = [
            (q, seq, settle_marker(verb, lease))
            for q, seq, lease in self._first
            if (q, seq, lease) not in self._done
            for verb in ("ack", "release")
        ]
        rows: list[Any] = self.commit.db.rows("find_settled", Values("iii", missed)) if missed else []
        for seq, left, state, stamp, own in rows:
            self._settled_before.setdefault((seq, left), []).append((state, self.commit.id(seq, stamp, own)))


def _ack_moves(commit: Commit, acked: Sequence[EndedLease]) -> list[Move]:
    """Store results, and end messages that were worked off."""
    kept = [row for row in acked if row.item.result is not None and row.item.result_ttl_us]
    if kept:
        rows = [(row.message.seq, commit.now + row.item.result_ttl_us, row.item.result) for row in kept]
        commit.db.send("upsert_results", Values("iib", rows))
    return [Move(row.message, DONE, "ack", row.lease) for row in acked]


def _release_moves(commit: Commit, released: Sequence[EndedLease]) -> list[Move]:
    """Decide where released messages go."""
    at_once = [
        (row.message, row.has_group_rate)
        for row in released
        if not row.cancel and not row.item.delay_us and row.item.hold is None
    ]
    tokens = token_times(commit, at_once)
    moves = []
    for row in released:
        message = row.message._replace(attempts=row.message.attempts - 1)  # the attempt does not count
        marker, token = settle_marker("release", row.lease), tokens.get(message.seq)
        if row.cancel:
            moves.append(Move(message, CANCELLED, "cancel", marker))
            continue
        worker, reason = text(row.worker), row.item.hold
        if reason is not None:
            moves.append(Move(message, HELD, "release", marker, reason=reason, worker=worker, detail=reason))
            continue
        at = commit.now + row.item.delay_us if row.item.delay_us else token
        state = READY if at is None else DELAYED
        moves.append(Move(message, state, "release", marker, at, token is not None, worker=worker))
    return moves


def _failure_moves(commit: Commit, failed: Sequence[EndedLease]) -> list[Move]:
    """Store failed attempts, and decide where their messages go."""
    write_failures(
        commit, [Failed(row.message, row.item.verb, row.worker, row.item.error, row.item.traceback) for row in failed]
    )
    changed = [(row.message.seq, row.message.max_attempts) for row in failed if row.item.max_attempts is not None]
    if changed:
        commit.db.send("set_max_attempts", Values("ii", changed))
    states = [_state_after_failure(row) for row in failed]
    at_once = [(row.message, row.has_group_rate) for row, state in zip(failed, states, strict=True) if state == READY]
    tokens = token_times(commit, at_once)
    moves = []
    for row, state in zip(failed, states, strict=True):
        message, verb, worker, detail = row.message, row.item.verb, text(row.worker), first_line(row.item.error)
        if state == DEAD:
            reason = _reason(row.item)
            marker = settle_marker(verb, row.lease)
            moves.append(Move(message, DEAD, verb, marker, reason=reason, worker=worker, detail=detail or reason))
        elif state == CANCELLED:
            moves.append(Move(message, CANCELLED, "cancel", row.lease, worker=worker, detail=detail))
        else:
            token = tokens.get(message.seq)
            at = commit.now + delay(row.item, message.attempts) if state == DELAYED else token
            state = READY if at is None else DELAYED  # noqa: PLW2901 - a token may be missing
            moves.append(Move(message, state, verb, row.lease, at, token is not None, worker=worker, detail=detail))
    return moves


def _state_after_failure(row: EndedLease) -> int:
    """The state that a nack or reject leads to."""
    if row.item.verb == "reject":
        return DEAD
    if row.cancel:
        return CANCELLED
    if row.message.attempts >= row.message.max_attempts:
        return DEAD
    return DELAYED if delay(row.item, row.message.attempts) else READY


def _reason(item: SettleItem) -> str:
    return (item.reason or UNRECOVERABLE) if item.verb == "reject" else RETRIES_EXHAUSTED


_DECISIONS: tuple[tuple[tuple[str, ...], Callable[[Commit, Sequence[EndedLease]], list[Move]]], ...] = (
    (("ack",), _ack_moves),
    (("release",), _release_moves),
    (("nack", "reject"), _failure_moves),
)
"""What decides about messages, by verb, in the order in which they are written."""
