"""purge and trim: removing messages for good, a bounded step per commit.

Contract: purge removes up to ``limit`` messages of one state (never leased ones) and journals it. Trim removes what is
past its retention: ended messages by queue, results, idempotency keys, journal records. It keeps journal records and
ended messages that a registered reader has not read yet. Neither reads what stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.encoding import CANCELLED, CODE, DEAD, DONE, EXPIRED, PARTITION, as_json, pack_seqs, unpack_seqs
from tampu.engines.port import Purge, Trim
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.group_rates import retime_ahead
from tampu.engines.sqlite.groups import leave_groups
from tampu.engines.sqlite.indexes import withdraw
from tampu.engines.sqlite.read import live_page
from tampu.model.errors import InvalidState, NotFound, TampuError
from tampu.model.message import State

ENDED_LATER = "SELECT at FROM tampu_ending WHERE q = ? AND state = ? AND no > ? ORDER BY no"
RECORDED_LATER = "SELECT at FROM tampu_journal WHERE first > ? ORDER BY first"
_MOST_ROWS = 10_000
QUEUES_A_STEP = 500
"""Queues that one commit trims."""


def purge(commit: Commit, calls: Sequence[Purge]) -> list[int | TampuError]:
    replies: list[int | TampuError] = []
    for call in calls:
        q = commit.registry.number(commit.db, call.tenant, call.queue)
        if q is None:
            replies.append(NotFound(f"no queue {call.queue}", field="queue"))
        elif call.state is State.LEASED:
            replies.append(InvalidState("leased messages cannot be purged", hint="cancel them, or wait until they end"))
        else:
            replies.append(_purge(commit, q, CODE[call.state], call.limit))
    return replies


def _purge(commit: Commit, q: int, code: int, limit: int) -> int:
    if code in (DONE, CANCELLED, EXPIRED):
        gone = _drop_ended(commit, q, code, limit, before=None)
    else:
        gone = [(seq, _withdraw_any(commit, q, code, seq)) for seq, _ in live_page(commit.db, q, code, None, limit)]
    seqs = [seq for seq, _ in gone]
    leave_groups(commit, q, seqs)
    _keep_own_ids(commit, q, seqs)
    for seq, attempts in gone:
        commit.note("purge", q, None, seq, attempts)
    _forget(commit, seqs)
    return len(gone)


def _withdraw_any(commit: Commit, q: int, code: int, seq: int) -> int:
    """Take a dead or waiting message out of its index. Returns its attempts."""
    if code == DEAD:
        commit.count(q, DEAD, -1)
        sql = "DELETE FROM tampu_dead WHERE seq = ? RETURNING attempts"
        (attempts,) = commit.db.execute(sql, (seq,)).fetchone()
        return int(attempts)
    place = withdraw(commit, seq)
    assert place is not None
    _, attempts = place
    return int(attempts)


def _keep_own_ids(commit: Commit, q: int, seqs: Sequence[int]) -> None:
    """User-given ids are stored with the message. The journal record needs them before the message is gone."""
    for seq in seqs:
        if seq & 1:
            commit.record("purge", q, None).ids[seq] = commit.id(seq)


def _drop_ended(
    commit: Commit, q: int, state: int, limit: int, before: int | None, upto: int | None = None
) -> list[tuple[int, int]]:
    """Take the oldest ended messages of a queue out of their index. Returns (seq, attempts) of each.

    Only those that ended by ``before``, in a commit with a number up to ``upto``.
    """
    gone: list[tuple[int, int]] = []
    ages = _Ages(commit, ENDED_LATER)
    while len(gone) < limit:
        row = commit.db.execute(
            "SELECT no, at, seqs FROM tampu_ending WHERE q = ? AND state = ? ORDER BY no LIMIT 1", (q, state)
        ).fetchone()
        if row is None:
            break
        no, at, packed = row
        if upto is not None and no > upto:
            break
        if before is not None and ages.since(at, q, state, no) > before:
            break
        seqs = unpack_seqs(packed)
        seqs, rest = seqs[: limit - len(gone)], seqs[limit - len(gone) :]
        key = (q, state, no)
        if rest:
            sql = "UPDATE tampu_ending SET seqs = ? WHERE q = ? AND state = ? AND no = ?"
            commit.db.execute(sql, (pack_seqs(rest), *key))
        else:
            commit.db.execute("DELETE FROM tampu_ending WHERE q = ? AND state = ? AND no = ?", key)
        found = commit.db.execute(
            "DELETE FROM tampu_ended WHERE seq IN (SELECT value FROM json_each(?)) RETURNING seq, attempts",
            (as_json(seqs),),
        ).fetchall()
        commit.count(q, state, -len(found))
        gone.extend(found)
    return gone


class _Ages:
    """When entries were written, read from the oldest on.

    A clock that was ahead has written times in the future. Such an entry is at least as old as the next one with a time
    in the past. Otherwise it would keep all entries after it until its own time comes.
    """

    def __init__(self, commit: Commit, later: str) -> None:
        self._commit = commit
        self._later = later
        self._next: int | None = None

    def since(self, at: int, *place: int) -> int:
        now = self._commit.now
        if at <= now:
            self._next = None
            return at
        if self._next is None:
            row = self._commit.db.execute(
                f"SELECT at FROM ({self._later} LIMIT {_MOST_ROWS}) WHERE at <= ? LIMIT 1",  # noqa: S608 - constants
                (*place, now),
            ).fetchone()
            (self._next,) = row or (now,)
        return self._next


def _forget(commit: Commit, seqs: Sequence[int]) -> None:
    text = as_json(seqs)
    for table in ("tampu_message", "tampu_failure", "tampu_result"):
        commit.db.execute(f"DELETE FROM {table} WHERE seq IN (SELECT value FROM json_each(?))", (text,))  # noqa: S608 - a constant


def trim(commit: Commit, calls: Sequence[Trim]) -> list[int | TampuError]:
    return [_trim(commit, call) for call in calls]


def _trim(commit: Commit, call: Trim) -> int:
    db, now, left = commit.db, commit.now, call.limit
    offset = None if call.read is None else call.read.get(PARTITION, 0)
    upto = None if offset is None else _read_number(commit, offset)
    for q, tenant, name in _next_queues(commit):
        if left <= 0:
            break
        commit.registry.trimmed = q
        before = now - call.retention_us.get((tenant, name), call.default_us)
        for state in (DONE, CANCELLED, EXPIRED):
            if left > 0:
                gone = _drop_ended(commit, q, state, left, before, upto)
                _forget(commit, [seq for seq, _ in gone])
                left -= len(gone)
    for sql in (
        "DELETE FROM tampu_result WHERE seq IN (SELECT seq FROM tampu_result WHERE until <= ? ORDER BY until LIMIT ?)",
        "DELETE FROM tampu_idempotency WHERE (tenant, key) IN"
        " (SELECT tenant, key FROM tampu_idempotency WHERE until <= ? ORDER BY until LIMIT ?)",
        "DELETE FROM tampu_pace WHERE (q, lane) IN"
        " (SELECT q, lane FROM tampu_pace WHERE spent <= ? ORDER BY spent LIMIT ?)",
    ):
        if left > 0:
            left -= db.execute(sql, (now, left)).rowcount
    retime_ahead(commit, call.limit)
    if left > 0:
        left -= _trim_journal(commit, now - call.journal_us, left, offset)
    return call.limit - left


def _next_queues(commit: Commit) -> list[tuple[int, str, str]]:
    """The next queues after those trimmed last. A commit over very many queues would block other writers."""
    last = commit.registry.trimmed
    found: list[tuple[int, str, str]] = []
    for where, n in ((">", last), ("<=", last)):
        sql = f"SELECT q, tenant, name FROM tampu_queue WHERE q {where} ? ORDER BY q LIMIT ?"  # noqa: S608 - constants
        found += commit.db.execute(sql, (n, QUEUES_A_STEP - len(found))).fetchall()
    return found


def _read_number(commit: Commit, offset: int) -> int:
    """The highest sequence number such that readers at ``offset`` have read all commits up to it.

    Ended messages are stored by number, not by journal offset, and times may go back. So each trim notes the current
    number and offset. Once the readers have passed that offset, they have read everything up to the number.
    """
    row = commit.db.execute("SELECT value FROM tampu_meta WHERE name = 'read'").fetchone()
    (text,) = row or ("0 0 0 0",)
    stored = tuple(map(int, text.split()))
    known_offset, known, next_offset, next_number = stored
    now_number, now_offset = commit.began
    if offset >= now_offset:
        known_offset, known = next_offset, next_number = now_offset, now_number
    elif offset < known_offset:  # a reader that is behind has joined
        known_offset, known, next_offset, next_number = 0, 0, now_offset, now_number
    elif offset >= next_offset:
        known_offset, known, next_offset, next_number = next_offset, next_number, now_offset, now_number
    state = (known_offset, known, next_offset, next_number)
    if state != stored:
        commit.db.execute("INSERT OR REPLACE INTO tampu_meta VALUES ('read', ?)", (" ".join(map(str, state)),))
    return known


def _trim_journal(commit: Commit, before: int, limit: int, upto: int | None) -> int:
    """Delete records from the oldest on, while they are old enough and read."""
    last = None
    ages = _Ages(commit, RECORDED_LATER)
    rows = commit.db.execute("SELECT first, n, at FROM tampu_journal ORDER BY first LIMIT ?", (limit,))
    for count, (first, n, at) in enumerate(rows):
        if ages.since(at, first) > before or (upto is not None and first + n - 1 > upto):
            limit = count
            break
        last = first
    if last is None:
        return 0
    return commit.db.execute("DELETE FROM tampu_journal WHERE first <= ?", (last,)).rowcount
