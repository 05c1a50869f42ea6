"""settle: end leases with ack, nack, reject or release.

Contract: one outcome per item. A receipt that is not the current lease of its message changes nothing and gives
LeaseLost, except when it is the very receipt that brought the message where it is, in the same way: then the
answer is the same again. A nack at max_attempts, and a cancel that was asked for, decide where a message goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tampu.engines.port import Ending, Settle
from tampu.engines.sqlite.codes import (
    CANCELLED,
    DEAD,
    DELAYED,
    DONE,
    LEASED,
    READY,
    STATES,
    as_json,
    parse_receipt,
)
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.failing import bury, write_failure
from tampu.model.errors import LeaseLost, TampuError
from tampu.model.outcome import Outcome

LEASES = (
    "SELECT l.seq, l.q, l.lease, l.attempts, l.worker, l.cancel, l.until FROM json_each(?) j"
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


_CLOSE = 8
"""How many sequence numbers per message a range may span, so that it costs no more than the look-ups."""


def settle(commit: Commit, calls: Sequence[Settle]) -> list[list[Outcome] | TampuError]:
    if len(calls) == 1 and calls[0].items:
        whole = _ack_claim(commit, calls[0])
        if whole is not None:
            return [whole]
    work = _Settling(commit, calls)
    replies: list[list[Outcome] | TampuError] = [
        [work.take(call.tenant, item) for item in call.items] for call in calls
    ]
    work.apply()
    return replies


def _ack_claim(commit: Commit, call: Settle) -> list[Outcome] | None:
    """Acks of all of one claim that lie close together: three ranges instead of a look-up each.

    This is what a batch worker sends; 1.75 times the rate of the general way (without the disk). None: go that way.
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
    q = commit.house.number(commit.db, call.tenant, queue)
    if q is None or lease >> 63 or low < 0 or high >> 63 or high - low > _CLOSE * len(numbers):
        return None
    rows = commit.db.execute(CLAIMED, (low, high, lease, q)).fetchall()
    seqs = [row[0] for row in rows]
    if seqs != sorted(numbers):
        return None
    commit.db.execute(DONE_CLAIM, (DONE, commit.now, low, high, lease))
    commit.db.execute(LEAVE_CLAIM, (low, high, lease))
    commit.count(q, LEASED, -len(rows))
    commit.ended(q, DONE, seqs)
    commit.record("ack", q, DONE).extend(seqs, [row[1] for row in rows])
    done = STATES[DONE]
    return [Outcome(item.id or commit.id(seq), done) for item, seq in zip(call.items, numbers, strict=True)]


class _Settling:
    def __init__(self, commit: Commit, calls: Sequence[Settle]) -> None:
        self.commit = commit
        self._parsed: dict[str, tuple[int, int] | TampuError] = {}
        for call in calls:
            for item in call.items:
                try:
                    self._parsed[item.receipt] = parse_receipt(item.receipt)
                except TampuError as error:
                    self._parsed[item.receipt] = error
        seqs = {place[0] for place in self._parsed.values() if isinstance(place, tuple)}
        rows = commit.db.execute(LEASES, (as_json(seqs),)).fetchall()
        self._leased: dict[int, Any] = {row[0]: row for row in rows}
        self._settled: dict[tuple[int, int], tuple[str, Outcome]] = {}
        self._acked: dict[int, list[tuple[int, int]]] = {}
        self._results: list[tuple[int, int, bytes]] = []
        self._failed: list[tuple[Ending, Any]] = []
        self._released: list[Any] = []

    def take(self, tenant: str, item: Ending) -> Outcome:
        """Decide about one item; `apply` carries it out."""
        place = self._parsed[item.receipt]
        if not isinstance(place, tuple):
            return Outcome(None, None, place)
        commit = self.commit
        q = commit.house.number(commit.db, tenant, item.queue)
        seq, lease = place
        row = self._leased.get(seq)
        if row is None or q is None or row[2] != lease or row[1] != q:
            return self._repeated(q, item.verb, seq, lease)
        del self._leased[seq]
        if item.verb == "ack":
            self._acked.setdefault(q, []).append((seq, row[3]))
            if item.result is not None and item.result_ttl_us:
                self._results.append((seq, commit.now + item.result_ttl_us, item.result))
            code = DONE
        elif item.verb == "release":
            code = CANCELLED if row[5] else READY
            self._released.append(row)
        else:
            code = self._failing(item, row)
            self._failed.append((item, row))
        outcome = Outcome(item.id or commit.id(seq), STATES[code])
        self._settled[place] = (item.verb, outcome)
        return outcome

    def _failing(self, item: Ending, row: Any) -> int:
        """Where a nack or reject leads."""
        if item.verb == "reject":
            return DEAD
        if row[5]:
            return CANCELLED
        if row[3] >= self._max_attempts(row[0]):
            return DEAD
        return DELAYED if delay(item, row[3]) else READY

    def _max_attempts(self, seq: int) -> int:
        return int(self.commit.db.execute("SELECT max_attempts FROM tampu_message WHERE seq = ?", (seq,)).fetchone()[0])

    def _repeated(self, q: int | None, verb: str, seq: int, lease: int) -> Outcome:
        """The same settlement again answers as the first time; anything else has lost its lease."""
        earlier = self._settled.get((seq, lease))
        if earlier is not None and earlier[0] == verb:
            return earlier[1]
        db = self.commit.db
        if q is not None and earlier is None:
            for sql, code in _WHERE_IT_LED[verb]:
                if db.execute(sql, (q, seq, trace(verb, lease))).fetchone() is not None:
                    return Outcome(self.commit.id(seq), STATES[code])
        return Outcome(
            None,
            None,
            LeaseLost(
                "this receipt is not the current lease of its message",
                field="receipt",
                hint="the lease ran out or was settled; stop working on it, somebody else may have it",
            ),
        )

    def apply(self) -> None:
        self._apply_acks()
        self._apply_releases()
        self._apply_failures()

    def _apply_acks(self) -> None:
        commit = self.commit
        for q, rows in self._acked.items():
            seqs = [row[0] for row in rows]
            text = as_json(seqs)
            commit.db.execute(DONE_ROWS, (DONE, commit.now, text))
            commit.db.execute(LEAVE, (text,))
            commit.count(q, LEASED, -len(rows))
            commit.ended(q, DONE, seqs)
            commit.record("ack", q, DONE).extend(seqs, [row[1] for row in rows])
        if self._results:
            commit.db.executemany("INSERT OR REPLACE INTO tampu_result VALUES (?, ?, ?)", self._results)

    def _leave(self, rows: Sequence[Any]) -> None:
        self.commit.db.execute(LEAVE, (as_json(row[0] for row in rows),))
        for row in rows:
            self.commit.count(row[1], LEASED, -1)

    def _apply_releases(self) -> None:
        commit, rows = self.commit, self._released
        if not rows:
            return
        self._leave(rows)
        back = []
        for seq, q, lease, attempts, worker, cancel, _ in rows:
            if cancel:
                commit.end(q, CANCELLED, [(seq, attempts - 1, trace("release", lease))])
                commit.note("cancel", q, CANCELLED, seq, attempts - 1)
            else:
                back.append((seq, q, rank_of(commit, seq), attempts - 1, trace("release", lease)))
                commit.note("release", q, READY, seq, attempts - 1, worker)
        commit.enter_ready(back)
        commit.restore_marks([row[0] for row in back])

    def _apply_failures(self) -> None:
        commit = self.commit
        if not self._failed:
            return
        self._leave([row for _, row in self._failed])
        for item, row in self._failed:
            seq, q, lease, attempts, worker, _, _ = row
            write_failure(commit, seq, attempts, item.verb, worker, item.error, item.traceback)
            code = self._failing(item, row)
            detail = first_line(item.error)
            if code == DEAD:
                reason = (item.reason or "unrecoverable") if item.verb == "reject" else "retries_exhausted"
                bury(commit, seq, q, attempts, trace(item.verb, lease), reason)
                commit.note(item.verb, q, DEAD, seq, attempts, worker, detail or reason)
                continue
            if code == CANCELLED:
                commit.end(q, CANCELLED, [(seq, attempts, lease)])
                commit.note("cancel", q, CANCELLED, seq, attempts, worker, detail)
                continue
            if code == DELAYED:
                commit.enter_delayed([(seq, q, commit.now + delay(item, attempts), attempts, lease)])
            else:
                commit.enter_ready([(seq, q, rank_of(commit, seq), attempts, lease)])
            commit.restore_marks([seq])
            commit.note(item.verb, q, code, seq, attempts, worker, detail)


# What comes back is a run of its own. Left to itself, SQLite walks the whole queue by the primary key here.
_READY = ("SELECT 1 FROM tampu_ready INDEXED BY tampu_ready_seq WHERE q = ? AND seq = ? AND lease = ?", READY)
_DELAYED = ("SELECT 1 FROM tampu_delayed WHERE q = ? AND seq = ? AND lease = ?", DELAYED)
_DEAD = ("SELECT 1 FROM tampu_dead WHERE q = ? AND seq = ? AND lease = ?", DEAD)
_DONE = (f"SELECT 1 FROM tampu_ended WHERE q = ? AND seq = ? AND lease = ? AND state = {DONE}", DONE)  # noqa: S608 - a constant
_CANCELLED = (f"SELECT 1 FROM tampu_ended WHERE q = ? AND seq = ? AND lease = ? AND state = {CANCELLED}", CANCELLED)  # noqa: S608 - a constant
_WHERE_IT_LED: dict[str, tuple[tuple[str, int], ...]] = {
    "ack": (_DONE,),
    "nack": (_DELAYED, _READY, _DEAD, _CANCELLED),
    "reject": (_DEAD,),
    "release": (_READY, _CANCELLED),
}


def trace(verb: str, lease: int) -> int:
    """What stays of a lease in the index it led to. Two verbs that lead to the same one leave different traces."""
    return ~lease if verb in ("release", "reject") else lease


def delay(item: Ending, attempts: int) -> int:
    if item.delay_us is not None:
        return item.delay_us
    if not item.delays:
        return 0
    return int(item.delays[min(attempts, len(item.delays)) - 1] * item.spread)


def first_line(error: str | None) -> str | None:
    return error.strip().partition("\n")[0][:500] if error and error.strip() else None


def rank_of(commit: Commit, seq: int) -> int:
    return int(commit.db.execute("SELECT rank FROM tampu_message WHERE seq = ?", (seq,)).fetchone()[0])
