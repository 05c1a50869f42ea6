"""settle: end leases with ack, nack, reject or release.

Contract: one outcome per item. A receipt that is not the current lease of its message changes nothing and gives
LeaseLost. Exception: the receipt that brought the message into its current state, with the same verb, gets the same
outcome again. A nack at max_attempts makes a message dead; a requested cancel makes it cancelled.
"""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.encoding import CANCELLED, DEAD, DELAYED, DONE, LEASED, READY, STATES, as_json, parse_receipt
from tampu.engines.port import Settle, SettleItem
from tampu.engines.rules import delay, first_line, lost, trace
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.finish import dead_letter, end, write_failure
from tampu.engines.sqlite.group_rates import token_again
from tampu.engines.sqlite.groups import leave_groups, step_back
from tampu.engines.sqlite.indexes import enter_delayed, enter_ready, restore_marks
from tampu.model.errors import TampuError
from tampu.model.outcome import Outcome
from tampu.model.reasons import RETRIES_EXHAUSTED, UNRECOVERABLE

LEASES = (
    "SELECT l.seq, l.q, l.lease, l.attempts, l.worker, l.cancel FROM json_each(?) j"
    " CROSS JOIN tampu_leased l ON l.seq = j.value"
)
DONE_ROWS = (
    "INSERT INTO tampu_ended SELECT l.seq, l.q, ?, ?, l.attempts, l.lease FROM json_each(?) j"
    " CROSS JOIN tampu_leased l ON l.seq = j.value"
)
CLAIMED = "SELECT seq, attempts FROM tampu_leased WHERE seq BETWEEN ? AND ? AND lease = ? AND q = ? ORDER BY seq"
DONE_CLAIM = (
    "INSERT INTO tampu_ended SELECT seq, q, ?, ?, attempts, lease FROM tampu_leased"
    " WHERE seq BETWEEN ? AND ? AND lease = ?"
)
LEAVE_CLAIM = "DELETE FROM tampu_leased WHERE seq BETWEEN ? AND ? AND lease = ?"
LEAVE = "DELETE FROM tampu_leased WHERE seq IN (SELECT value FROM json_each(?))"

_LeaseRow = tuple[int, int, int, int, str | None, int]
"""A row of `LEASES`: (seq, q, lease, attempts, worker, cancel)."""
_WORTHWHILE = 16
"""From this many acks on, range statements for a call are cheaper than the look-up that calls share."""
_CLOSE = 8
"""How many sequence numbers per message a range may span and still cost no more than the look-ups."""


def settle(commit: Commit, calls: Sequence[Settle]) -> list[list[Outcome] | TampuError]:
    replies = _settle(commit, calls)
    for call, outcomes in zip(calls, replies, strict=True):
        for queue, count in call.freed(outcomes).items():
            q = commit.queue(call.tenant, queue)
            commit.became_ready(q, count)
    return list(replies)


def _settle(commit: Commit, calls: Sequence[Settle]) -> list[list[Outcome]]:
    least = 1 if len(calls) == 1 else _WORTHWHILE
    whole = [_ack_claim(commit, call) if len(call.items) >= least else None for call in calls]
    rest = [call for call, outcomes in zip(calls, whole, strict=True) if outcomes is None]
    if not rest:
        return [outcomes for outcomes in whole if outcomes is not None]
    work = _Settling(commit, rest)
    others = iter([[work.take(call, item) for item in call.items] for call in rest])
    work.apply()
    return [next(others) if outcomes is None else outcomes for outcomes in whole]


def _ack_claim(commit: Commit, call: Settle) -> list[Outcome] | None:
    """Acks of one claim with numbers close together: three range statements instead of a look-up for each.

    Batch workers send these. 1.75 times as fast as `_Settling` (without the disk). None: use `_Settling`.
    """
    queue = call.items[0].queue
    lease_text = call.items[0].receipt.rpartition(".")[2]
    begin, end = f"{queue}/", f".{lease_text}"
    start, stop = len(begin), -len(end)
    texts = []
    for item in call.items:
        text = item.receipt
        if item.verb != "ack" or item.result is not None or not (text.startswith(begin) and text.endswith(end)):
            return None
        texts.append(text[start:stop])
    try:
        numbers = [int(text, 16) for text in texts]
        lease = int(lease_text, 16)
    except ValueError:
        return None
    low, high = min(numbers), max(numbers)
    q = commit.registry.number(commit.db, call.tenant, queue)
    if q is None or lease >> 63 or low < 0 or high >> 63 or high - low > _CLOSE * len(numbers):
        return None
    rows = commit.db.execute(CLAIMED, (low, high, lease, q)).fetchall()
    seqs = [seq for seq, _ in rows]
    if seqs != sorted(numbers):
        return None
    commit.db.execute(DONE_CLAIM, (DONE, commit.now, low, high, lease))
    commit.db.execute(LEAVE_CLAIM, (low, high, lease))
    commit.count(q, LEASED, -len(rows))
    commit.ended(q, DONE, seqs)
    leave_groups(commit, q, seqs)
    commit.record("ack", q, DONE).extend(seqs, [attempts for _, attempts in rows])
    done = STATES[DONE]
    commit.learn_ids(seqs)
    return [Outcome(item.id or commit.id(seq), done) for item, seq in zip(call.items, numbers, strict=True)]


class _Settling:
    """All settlements of a commit: `take` decides about each, `apply` writes them."""

    def __init__(self, commit: Commit, calls: Sequence[Settle]) -> None:
        self.commit = commit
        self._parsed: dict[str, tuple[int, int] | TampuError] = {}
        for call in calls:
            for item in call.items:
                try:
                    self._parsed[item.receipt] = parse_receipt(item.receipt)
                except TampuError as error:
                    self._parsed[item.receipt] = error
        seqs = {seq for seq, _ in (place for place in self._parsed.values() if isinstance(place, tuple))}
        rows: list[_LeaseRow] = commit.db.execute(LEASES, (as_json(seqs),)).fetchall()
        commit.learn_ids(seq for seq, _, _, _, _, _ in rows)
        self._leased: dict[tuple[int | None, int, int], _LeaseRow] = {}
        for row in rows:
            seq, q, lease, _, _, _ = row
            self._leased[q, seq, lease] = row
        self._settled: dict[tuple[int, int], tuple[str, Outcome]] = {}
        self._acked: dict[int, list[tuple[int, int]]] = {}
        self._results: list[tuple[int, int, bytes]] = []
        self._failed: list[tuple[SettleItem, _LeaseRow]] = []
        self._released: list[tuple[SettleItem, _LeaseRow]] = []
        self._known: dict[int, tuple[int, str | None, int]] = {}
        self._tokens: dict[int, int] = {}
        """When there is a token for messages that return without a delay, in groups with a rate."""

    def take(self, call: Settle, item: SettleItem) -> Outcome:
        """Decide where one item goes."""
        place = self._parsed[item.receipt]
        if not isinstance(place, tuple):
            return Outcome(None, None, place)
        commit = self.commit
        q = commit.registry.number(commit.db, call.tenant, item.queue)
        seq, lease = place
        row = self._leased.pop((q, seq, lease), None)
        if row is None or q is None:
            return Outcome(None, None, lost()) if call.strict else self._repeated(q, item.verb, seq, lease)
        _, _, _, attempts, _, cancel = row
        if item.verb == "ack":
            self._acked.setdefault(q, []).append((seq, attempts))
            if item.result is not None and item.result_ttl_us:
                self._results.append((seq, commit.now + item.result_ttl_us, item.result))
            code = DONE
        elif item.verb == "release":
            code = CANCELLED if cancel else DELAYED if item.delay_us else READY
            self._released.append((item, row))
        else:
            code = self._failing(item, row)
            self._failed.append((item, row))
        if code == READY:
            code = self._back(seq, q)
        outcome = Outcome(item.id or commit.id(seq), STATES[code])
        self._settled[place] = (item.verb, outcome)
        return outcome

    def _failing(self, item: SettleItem, row: _LeaseRow) -> int:
        """The state after a nack or reject."""
        seq, _, _, attempts, _, cancel = row
        if item.verb == "reject":
            return DEAD
        if cancel:
            return CANCELLED
        max_attempts = item.max_attempts
        if not max_attempts:
            max_attempts, _, _ = self._facts(seq)
        if attempts >= max_attempts:
            return DEAD
        return DELAYED if delay(item, attempts) else READY

    def _back(self, seq: int, q: int) -> int:
        """The state of a message that returns without a delay."""
        _, group, _ = self._facts(seq)
        if group is not None:
            self.commit.db.execute("DELETE FROM tampu_leased WHERE seq = ?", (seq,))
            at = token_again(self.commit, seq, q, group)
            if at is not None:
                self._tokens[seq] = at
                return DELAYED
        return READY

    def _facts(self, seq: int) -> tuple[int, str | None, int]:
        """(max_attempts, group, rank)"""
        if seq not in self._known:
            sql = "SELECT max_attempts, lane, rank FROM tampu_message WHERE seq = ?"
            self._known[seq] = self.commit.db.execute(sql, (seq,)).fetchone()
        return self._known[seq]

    def _repeated(self, q: int | None, verb: str, seq: int, lease: int) -> Outcome:
        """A repeated settlement gets the same outcome again; any other has lost its lease."""
        earlier_verb, outcome = self._settled.get((seq, lease), (None, None))
        if outcome is not None and earlier_verb == verb:
            return outcome
        db = self.commit.db
        if q is not None and outcome is None:
            for sql, code in _FIND_SETTLED[verb]:
                if db.execute(sql, (q, seq, trace(verb, lease))).fetchone() is not None:
                    return Outcome(self.commit.id(seq), STATES[code])
        return Outcome(None, None, lost())

    def apply(self) -> None:
        self._apply_acks()
        self._apply_releases()
        self._apply_failures()

    def _apply_acks(self) -> None:
        commit = self.commit
        for q, rows in self._acked.items():
            seqs = [seq for seq, _ in rows]
            text = as_json(seqs)
            commit.db.execute(DONE_ROWS, (DONE, commit.now, text))
            commit.db.execute(LEAVE, (text,))
            commit.count(q, LEASED, -len(rows))
            commit.ended(q, DONE, seqs)
            leave_groups(commit, q, seqs)
            commit.record("ack", q, DONE).extend(seqs, [attempts for _, attempts in rows])
        if self._results:
            commit.db.executemany("INSERT OR REPLACE INTO tampu_result VALUES (?, ?, ?)", self._results)

    def _leave(self, rows: Sequence[_LeaseRow]) -> None:
        self.commit.db.execute(LEAVE, (as_json(seq for seq, _, _, _, _, _ in rows),))
        for _, q, _, _, _, _ in rows:
            self.commit.count(q, LEASED, -1)

    def _apply_releases(self) -> None:
        commit = self.commit
        if not self._released:
            return
        self._leave([row for _, row in self._released])
        back, later = [], []
        for item, (seq, q, lease, attempts, worker, cancel) in self._released:
            if cancel:
                end(commit, q, CANCELLED, [(seq, attempts - 1, trace("release", lease))])
                commit.note("cancel", q, CANCELLED, seq, attempts - 1)
            elif item.delay_us:
                later.append((seq, q, commit.now + item.delay_us, attempts - 1, trace("release", lease)))
                commit.note("release", q, DELAYED, seq, attempts - 1, worker)
            elif seq in self._tokens:
                later.append((seq, q, self._tokens[seq], attempts - 1, trace("release", lease)))
                commit.note("release", q, DELAYED, seq, attempts - 1, worker)
            else:
                _, _, rank = self._facts(seq)
                back.append((seq, q, rank, attempts - 1, trace("release", lease)))
                commit.note("release", q, READY, seq, attempts - 1, worker)
        enter_ready(commit, back)
        enter_delayed(commit, later)
        for seq, q, _, _, _ in later:
            if seq not in self._tokens:
                _, group, _ = self._facts(seq)
                step_back(commit, seq, q, group)
        restore_marks(commit, [seq for seq, _, _, _, _ in (*back, *later)])

    def _apply_failures(self) -> None:
        commit = self.commit
        if not self._failed:
            return
        self._leave([row for _, row in self._failed])
        for item, row in self._failed:
            seq, q, lease, attempts, worker, _ = row
            write_failure(commit, seq, attempts, item.verb, worker, item.error, item.traceback)
            if item.max_attempts is not None:
                commit.db.execute("UPDATE tampu_message SET max_attempts = ? WHERE seq = ?", (item.max_attempts, seq))
            code = self._failing(item, row)
            detail = first_line(item.error)
            if code == DEAD:
                reason = (item.reason or UNRECOVERABLE) if item.verb == "reject" else RETRIES_EXHAUSTED
                dead_letter(commit, seq, q, attempts, trace(item.verb, lease), reason)
                commit.note(item.verb, q, DEAD, seq, attempts, worker, detail or reason)
                continue
            if code == CANCELLED:
                end(commit, q, CANCELLED, [(seq, attempts, lease)])
                commit.note("cancel", q, CANCELLED, seq, attempts, worker, detail)
                continue
            _, group, rank = self._facts(seq)
            if code == DELAYED:
                enter_delayed(commit, [(seq, q, commit.now + delay(item, attempts), attempts, lease)])
                step_back(commit, seq, q, group)
            elif seq in self._tokens:
                enter_delayed(commit, [(seq, q, self._tokens[seq], attempts, lease)])
                code = DELAYED
            else:
                enter_ready(commit, [(seq, q, rank, attempts, lease)])
            restore_marks(commit, [seq])
            commit.note(item.verb, q, code, seq, attempts, worker, detail)


# A message that returned is a run of its own. Without INDEXED BY, SQLite walks the whole queue by the primary key.
_READY = ("SELECT 1 FROM tampu_ready INDEXED BY tampu_ready_seq WHERE q = ? AND seq = ? AND lease = ?", READY)
_DELAYED = ("SELECT 1 FROM tampu_delayed WHERE q = ? AND seq = ? AND lease = ?", DELAYED)
_DEAD = ("SELECT 1 FROM tampu_dead WHERE q = ? AND seq = ? AND lease = ?", DEAD)
_DONE = (f"SELECT 1 FROM tampu_ended WHERE q = ? AND seq = ? AND lease = ? AND state = {DONE}", DONE)  # noqa: S608 - a constant
_CANCELLED = (f"SELECT 1 FROM tampu_ended WHERE q = ? AND seq = ? AND lease = ? AND state = {CANCELLED}", CANCELLED)  # noqa: S608 - a constant
_FIND_SETTLED: dict[str, tuple[tuple[str, int], ...]] = {
    "ack": (_DONE,),
    "nack": (_DELAYED, _READY, _DEAD, _CANCELLED),
    "reject": (_DEAD,),
    "release": (_READY, _DELAYED, _CANCELLED),
}
