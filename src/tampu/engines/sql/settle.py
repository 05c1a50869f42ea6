"""settle: end leases with ack, nack, reject or release.

Contract: one outcome per item. A receipt that is not the current lease of its message changes nothing and gives
LeaseLost, except when it is the very receipt that brought the message where it is, in the same way: then the
answer is the same again. A nack at max_attempts, and a cancel that was asked for, decide where a message goes.

The fence is a DELETE of the lease's row: whoever gets the row settles. Acks of one claim, which is what a batch worker
sends, are one statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tampu.engines.encoding import CANCELLED, DEAD, DELAYED, DONE, LEASED, READY, STATES, pack_seqs, parse_receipt
from tampu.engines.port import Call, Settle, SettleItem
from tampu.engines.rules import delay, first_line, lost, trace
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs, Db, Ints, text
from tampu.engines.sql.finish import Failed, dead_letter, end, write_failures
from tampu.engines.sql.group_rates import coming_back
from tampu.engines.sql.groups import leave_groups, step_back
from tampu.engines.sql.indexes import enter_delayed, enter_ready, restore_marks
from tampu.engines.sql.message_row import MessageRow
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.model.errors import TampuError
from tampu.model.message import State
from tampu.model.outcome import Outcome
from tampu.model.reasons import RETRIES_EXHAUSTED, UNRECOVERABLE

Place = tuple[int, int, int]
"""(q, seq, lease)"""
_NUMBERS = re.compile(r"[0-9a-f]+(\n[0-9a-f]+)*\Z")
_LED_TO = {
    "ack": (DONE,),
    "nack": (DELAYED, READY, DEAD, CANCELLED),
    "reject": (DEAD,),
    "release": (READY, DELAYED, CANCELLED),
}


class Unleased(NamedTuple):
    """What the fence gave."""

    item: SettleItem
    message: MessageRow
    lease: int
    worker: bytes | None
    cancel: bool
    has_group_rate: bool
    """Its group has a pace."""


class Sent(NamedTuple):
    """Acks that were sent together with the beginning of the commit, to spare a round trip."""

    q: int
    lease: int
    seqs: list[int]
    rows: Callable[[], list[Any]]
    until: int | None
    """That of the claim's row, if nothing was to be left of it."""
    missed: list[Any]
    """What was acked, when not all was."""


def acks_of_one_claim(items: Sequence[SettleItem]) -> tuple[int, list[int]] | None:
    """(lease, seqs), if these are acks without a result, of one claim, none twice: what a batch worker sends."""
    if any(item.verb != "ack" or item.result is not None for item in items):
        return None
    # All receipts begin and end alike; taken apart together, that is half the work of one by one.
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


def send_ahead(db: Db, registry: QueueRegistry, calls: Sequence[Call], now: int | None) -> Sent | None:
    """The acks of a run, when all are of one claim: what a batch worker sends."""
    call = calls[0]
    if len(calls) > 1 or not isinstance(call, Settle) or not call.items:
        return None
    q, found = registry.numbers.get((call.tenant, call.items[0].queue)), acks_of_one_claim(call.items)
    if q is None or found is None:
        return None
    lease, seqs = found
    until = registry.watched.rest(lease, len(seqs))
    rows = db.ahead("ack", Ints(seqs), lease, q, now, DONE, pack_seqs(seqs), until)
    return Sent(q, lease, seqs, rows, until, [])


def _ack_sent(commit: Commit, call: Settle, sent: Sent) -> list[Outcome] | None:
    """The common case: every receipt was current. None: some were not, and the general way finds out which."""
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
    """Note messages of one claim whose rows have moved; ``left``: and that of the claim is gone."""
    rows.sort()
    commit.settled(lease, len(rows), left=left)
    seqs, attempts, stamps, owns, groups = zip(*rows, strict=True)
    commit.count(q, LEASED, -len(rows))
    commit.ended(q, DONE, list(seqs))
    record = commit.record("ack", q, DONE)
    if any(owns):
        record.own.update({place: own.bytes for place, own in enumerate(owns, len(record.seqs)) if own is not None})
    record.extend(seqs, stamps, attempts)
    if any(group is not None for group in groups):
        leave_groups(commit, ((q, group, seq) for group, seq in zip(groups, seqs, strict=True)))


def settle(commit: Commit, calls: Sequence[Settle]) -> list[list[Outcome] | TampuError]:
    replies = _settle(commit, calls)
    for call, outcomes in zip(calls, replies, strict=True):
        for queue, count in call.freed(outcomes).items():
            commit.became_ready(commit.queue(call.tenant, queue), count)
    return list(replies)


def _settle(commit: Commit, calls: Sequence[Settle]) -> list[list[Outcome]]:
    sent, commit.sent = commit.sent, None
    if sent is not None:
        whole = _ack_sent(commit, calls[0], sent)
        if whole is not None:
            return [whole]
    work = _Settling(commit, sent)
    places = [[work.place(call.tenant, item) for item in call.items] for call in calls]
    for call, found in zip(calls, places, strict=True):
        for item, place in zip(call.items, found, strict=True):
            if isinstance(place, tuple):
                work.gather(item, place)
    work.fence()
    work.apply()
    return [
        [work.outcome(call, item, place) for item, place in zip(call.items, found, strict=True)]
        for call, found in zip(calls, places, strict=True)
    ]


class _Settling:
    def __init__(self, commit: Commit, sent: Sent | None) -> None:
        self.commit = commit
        self._sent = sent
        self._first: dict[Place, SettleItem] = {}
        """What was asked first of each lease; what else is asked of it in this commit comes too late."""
        self._acks: dict[tuple[int, int], list[int]] = {}
        """Acks without a result, by (q, lease)."""
        self._others: dict[Place, SettleItem] = {}
        self._unleased: list[Unleased] = []
        self._done: dict[Place, tuple[str, State, str | None]] = {}
        """(verb, state, id) of what was settled here."""
        self._led: dict[tuple[int, int], list[tuple[int, str]]] = {}
        self._asked = False

    def place(self, tenant: str, item: SettleItem) -> Place | TampuError:
        try:
            seq, lease = parse_receipt(item.receipt)
        except TampuError as error:
            return error
        q = self.commit.registry.number(self.commit.db, tenant, item.queue)
        return lost() if q is None else (q, seq, lease)

    def gather(self, item: SettleItem, place: Place) -> None:
        if place in self._first:
            return
        self._first[place] = item
        q, seq, lease = place
        if item.verb == "ack" and item.result is None:
            self._acks.setdefault((q, lease), []).append(seq)
        else:
            self._others[place] = item

    def fence(self) -> None:
        db, done = self.commit.db, STATES[DONE]
        for (q, lease), seqs in list(self._acks.items()):
            if len(seqs) < 4 and len(self._acks) > 1:  # single acks of many claims: one statement for all
                self._others.update({(q, seq, lease): self._first[q, seq, lease] for seq in seqs})
                continue
            until = self.commit.registry.watched.rest(lease, len(seqs))
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
            found: dict[Place, tuple[MessageRow, bytes | None, bool, bool]] = {}
            for *columns, lease, worker, cancel, group_rate in db.rows(
                "take_leases", *map(Ints, zip(*wanted, strict=True))
            ):
                message = MessageRow(*columns)
                found[message.q, message.seq, lease] = message, worker, cancel, group_rate is not None
            # In the order they were asked for, which is the order they come back in.
            for place, item in self._others.items():
                if place in found:
                    _, _, lease = place
                    message, worker, cancel, has_group_rate = found[place]
                    if item.max_attempts is not None:
                        message = message._replace(max_attempts=item.max_attempts)
                    self.commit.settled(lease, 1)
                    self._unleased.append(Unleased(item, message, lease, worker, cancel, has_group_rate))

    def apply(self) -> None:
        self.commit.count_all((u.message for u in self._unleased), LEASED, -1)
        by_verb: dict[str, list[Unleased]] = {}
        for one in self._unleased:
            by_verb.setdefault(one.item.verb, []).append(one)
        self._ack(by_verb.pop("ack", []))
        self._release(by_verb.pop("release", []))
        self._fail([one for one in self._unleased if one.item.verb in ("nack", "reject")])

    def _settled(self, one: Unleased, state: int) -> None:
        message = one.message
        id = one.item.id or self.commit.id(message.seq, message.stamp, message.own)
        self._done[message.q, message.seq, one.lease] = (one.item.verb, STATES[state], id)

    def _ack(self, acked: list[Unleased]) -> None:
        commit = self.commit
        messages = [one.message for one in acked]
        end(commit, DONE, messages, [one.lease for one in acked])
        for one in acked:
            commit.note("ack", DONE, one.message)
            self._settled(one, DONE)
        kept = [one for one in acked if one.item.result is not None and one.item.result_ttl_us]
        if kept:
            commit.db.send(
                "upsert_results",
                Ints(one.message.seq for one in kept),
                Ints(commit.now + one.item.result_ttl_us for one in kept),
                Blobs(one.item.result for one in kept),
            )

    def _release(self, released: list[Unleased]) -> None:
        commit = self.commit
        # The attempt does not count.
        given = [one._replace(message=one.message._replace(attempts=one.message.attempts - 1)) for one in released]
        over = [one for one in given if one.cancel]
        later = [(one, commit.now + one.item.delay_us) for one in given if not one.cancel and one.item.delay_us]
        end(commit, CANCELLED, [one.message for one in over], [trace("release", one.lease) for one in over])
        for one in over:
            commit.note("cancel", CANCELLED, one.message)
            self._settled(one, CANCELLED)
        back, tokens = self._back([one for one in given if not one.cancel and not one.item.delay_us])
        for one in back:
            commit.note("release", READY, one.message, text(one.worker))
            self._settled(one, READY)
        waiting = [*later, *tokens]
        for one, _ in waiting:
            commit.note("release", DELAYED, one.message, text(one.worker))
            self._settled(one, DELAYED)
        enter_ready(commit, [one.message for one in back], [trace("release", one.lease) for one in back])
        enter_delayed(
            commit,
            [one.message for one, _ in waiting],
            [due for _, due in waiting],
            [trace("release", one.lease) for one, _ in waiting],
        )
        step_back(commit, (one.message for one, _ in later))
        restore_marks(commit, (one.message for one in (*back, *(one for one, _ in waiting))))

    def _back(self, returned: list[Unleased]) -> tuple[list[Unleased], list[tuple[Unleased, int]]]:
        """Of those that are to come back at once: who does, and who waits for a token of its group, until when."""
        times = coming_back(self.commit, [(one.message, one.has_group_rate) for one in returned])
        at_once = [one for one, at in zip(returned, times, strict=True) if at is None]
        return at_once, [(one, at) for one, at in zip(returned, times, strict=True) if at is not None]

    def _fail(self, failed: list[Unleased]) -> None:
        commit = self.commit
        write_failures(
            commit,
            [Failed(one.message, one.item.verb, one.worker, one.item.error, one.item.traceback) for one in failed],
        )
        changed = [one.message for one in failed if one.item.max_attempts is not None]
        if changed:
            commit.db.send(
                "set_max_attempts",
                Ints(message.seq for message in changed),
                Ints(message.max_attempts for message in changed),
            )
        by_state: dict[int, list[Unleased]] = {DEAD: [], CANCELLED: [], DELAYED: [], READY: []}
        _, waiting = self._back([one for one in failed if _failing(one) == READY])
        tokens = {one.message.seq: at for one, at in waiting}
        for one in failed:
            state = DELAYED if one.message.seq in tokens else _failing(one)
            by_state[state].append(one)
            self._settled(one, state)
            detail = first_line(one.item.error)
            if state == DEAD:
                detail = detail or _reason(one.item)
            verb = "cancel" if state == CANCELLED else one.item.verb
            commit.note(verb, state, one.message, text(one.worker), detail)
        later, back, over = by_state[DELAYED], by_state[READY], by_state[CANCELLED]
        enter_delayed(
            commit,
            [one.message for one in later],
            [tokens.get(one.message.seq, commit.now + delay(one.item, one.message.attempts)) for one in later],
            [one.lease for one in later],
        )
        enter_ready(commit, [one.message for one in back], [one.lease for one in back])
        step_back(commit, (one.message for one in later if one.message.seq not in tokens))
        restore_marks(commit, (one.message for one in (*later, *back)))
        end(commit, CANCELLED, [one.message for one in over], [one.lease for one in over])
        dead_letter(
            commit, [(one.message, trace(one.item.verb, one.lease), _reason(one.item)) for one in by_state[DEAD]]
        )

    # -- answers

    def outcome(self, call: Settle, item: SettleItem, place: Place | TampuError) -> Outcome:
        if not isinstance(place, tuple):
            return Outcome(None, None, place)
        done = self._done.get(place)
        if call.strict and (done is None or self._first[place] is not item):
            return Outcome(None, None, lost())
        if done is not None:
            return Outcome(done[2], done[1]) if done[0] == item.verb else Outcome(None, None, lost())
        return self._repeated(item, place)

    def _repeated(self, item: SettleItem, place: Place) -> Outcome:
        """The same settlement again answers as the first time; anything else has lost its lease."""
        if not self._asked:
            self._asked = True
            self._ask_where()
        _, seq, lease = place
        for state, id in self._led.get((seq, trace(item.verb, lease)), ()):
            if state in _LED_TO[item.verb]:
                return Outcome(id, STATES[state])
        return Outcome(None, None, lost())

    def _ask_where(self) -> None:
        missed = [
            (q, seq, trace(verb, lease))
            for q, seq, lease in self._first
            if (q, seq, lease) not in self._done
            for verb in ("ack", "release")
        ]
        rows: list[Any] = self.commit.db.rows("find_settled", *map(Ints, zip(*missed, strict=True))) if missed else []
        for seq, left, state, stamp, own in rows:
            self._led.setdefault((seq, left), []).append((state, self.commit.id(seq, stamp, own)))


def _failing(one: Unleased) -> int:
    """Where a nack or reject leads."""
    if one.item.verb == "reject":
        return DEAD
    if one.cancel:
        return CANCELLED
    if one.message.attempts >= one.message.max_attempts:
        return DEAD
    return DELAYED if delay(one.item, one.message.attempts) else READY


def _reason(item: SettleItem) -> str:
    return (item.reason or UNRECOVERABLE) if item.verb == "reject" else RETRIES_EXHAUSTED
