"""purge, remove and trim: remove messages for good, a bounded number per commit.

Contract: purge removes up to ``limit`` messages of one state (never leased ones) and journals it; remove does so by id.
Trim removes what is
past its retention: ended messages by queue, results, idempotency keys and journal records. It keeps journal records and
ended messages that a registered reader has not read yet. The cost of both does not depend on what stays.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tampu.engines.encoding import (
    CANCELLED,
    CODE,
    DEAD,
    DONE,
    EXPIRED,
    LEASED,
    PARTITION,
    STATES,
    pack_seqs,
    unpack_seqs,
)
from tampu.engines.port import Purge, Remove, Trim
from tampu.engines.rules import leased
from tampu.engines.sql import journal
from tampu.engines.sql import read as reading
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Ints
from tampu.engines.sql.read import find, live_page
from tampu.engines.sql.rules.group_rates import retime_ahead
from tampu.engines.sql.rules.groups import leave_groups
from tampu.engines.sql.rules.indexes import withdraw
from tampu.engines.sql.rules.message_row import MessageRow
from tampu.engines.sql.verbs.admin import each_message
from tampu.model.errors import InvalidState, NotFound, TampuError
from tampu.model.outcome import Outcome
from tampu.model.states import TERMINAL

_ENDINGS = 100
_ANY_TIME = (1 << 63) - 1
_TRIES = 5


def purge(commit: Commit, call: Purge) -> int:
    q, code, limit = commit.registry.number(commit.db, call.tenant, call.queue), CODE[call.state], call.limit
    if q is None:
        raise NotFound(f"no queue {call.queue}", field="queue")
    if code == LEASED:
        raise InvalidState("leased messages cannot be purged", hint="cancel them, or wait for their end")
    if code in (DONE, CANCELLED, EXPIRED):
        gone = [MessageRow(*row) for row in _drop_ended(commit, q, code, limit, before=None)]
    elif code == DEAD:
        gone = [MessageRow(*row) for row in _drop_dead(commit, q, call)]
        commit.count(q, DEAD, -len(gone))
    else:
        seqs = [seq for seq, _ in live_page(commit.db, q, code, None, limit)]
        found = withdraw(commit, seqs)
        gone = [found[seq] for seq in seqs if seq in found]
    leave_groups(commit, ((q, message.group, message.seq) for message in gone))
    for message in gone:
        commit.note("purge", None, message, call.actor)
    _forget(commit, [message.seq for message in gone])
    return len(gone)


def _drop_dead(commit: Commit, q: int, call: Purge) -> list[Any]:
    """Take dead messages of a queue out of their index: the oldest, or those with the given ids."""
    if call.ids is None:
        until = _ANY_TIME if call.until_us is None else call.until_us
        return commit.db.rows("purge_dead", q, call.limit, until)
    found = find(commit.db, commit.registry, call.tenant, call.ids) if call.ids else {}
    seqs = sorted({seq for seq, queue in found.values() if queue == q})[: call.limit]
    return commit.db.rows("remove_dead", Ints(seqs)) if seqs else []


def remove(commit: Commit, call: Remove) -> list[Outcome]:
    return each_message(commit, call.tenant, call.ids, functools.partial(_remove, call))


def _remove(call: Remove, commit: Commit, seqs: dict[int, str]) -> dict[int, int | TampuError]:
    done: dict[int, int | TampuError] = {}
    for _ in range(_TRIES):
        states = {seq: code for seq, (code, _) in reading.states(commit.db, [s for s in seqs if s not in done]).items()}
        if not states:
            break
        gone = list(withdraw(commit, [seq for seq, code in states.items() if STATES[code] not in TERMINAL]).values())
        for code in (DEAD, DONE, CANCELLED, EXPIRED):
            ended = [seq for seq, state in states.items() if state == code]
            if ended:
                removed = _take_ended(commit, code, ended)
                commit.count_all(removed, code, -1)
                gone += removed
        leave_groups(commit, ((message.q, message.group, message.seq) for message in gone))
        for message in gone:
            commit.note("purge", None, message, call.actor)
            done[message.seq] = states[message.seq]
        _forget(commit, [message.seq for message in gone])
        done |= {seq: leased() for seq, code in states.items() if code == LEASED and seq not in done}
    return done


def _take_ended(commit: Commit, code: int, seqs: list[int]) -> list[MessageRow]:
    """Take messages out of the index of their state. Rows of endings keep their numbers; trim passes over them."""
    rows = commit.db.rows("remove_dead" if code == DEAD else "remove_ended", Ints(seqs))
    return [MessageRow(*row) for row in rows]


def _drop_ended(
    commit: Commit,
    q: int,
    state: int,
    limit: int,
    before: int | None,
    read: int | None = None,
    *,
    short: bool = False,
) -> list[Any]:
    """Take the oldest ended messages of a queue out of their index. Returns message rows; if ``short``, only seqs.

    Only those that ended by ``before``, in commits that readers at journal offset ``read`` have read completely.
    """
    gone: list[Any] = []
    while len(gone) < limit:
        rows = commit.db.rows("lock_oldest_endings", q, state, _ENDINGS)
        kept: set[int] = set()
        if read is not None and rows:
            kept = {no for (no,) in commit.db.rows("select_unread_entries", Ints(no for no, _, _ in rows), read)}
        chosen: list[int] = []
        spent: list[int] = []
        ages = journal.written_at(
            commit.now,
            [(no, at) for no, at, _ in rows],
            lambda no: commit.db.value("select_later_ending", q, state, no, commit.now),
        )
        for (no, _, packed), age in zip(rows, ages, strict=True):
            if no in kept or (before is not None and age > before):
                break
            seqs = unpack_seqs(packed)
            most = limit - len(gone) - len(chosen)
            chosen.extend(seqs[:most])
            if len(seqs) > most:
                commit.db.send("update_ending", q, state, no, pack_seqs(seqs[most:]))
                break
            spent.append(no)
        if not chosen and not spent:
            break
        commit.db.send("delete_endings", q, state, Ints(spent))
        rows = commit.db.rows("delete_ended" if short else "remove_ended", Ints(chosen))
        commit.count(q, state, -len(rows))
        gone.extend(rows)
        if len(spent) < _ENDINGS:
            break
    return gone


def _forget(commit: Commit, seqs: Sequence[int]) -> None:
    if seqs:
        commit.db.send("delete_messages", Ints(seqs))


def trim(commit: Commit, call: Trim) -> int:
    db, now, left = commit.db, commit.now, call.limit
    read = None if call.read is None else call.read.get(PARTITION, 0)
    shortest = min([call.default_us, *call.retention_us.values()])
    for q, state in db.rows("select_queues_to_trim", now - shortest, now):
        before = now - call.retention_us.get(commit.registry.name(db, q), call.default_us)
        gone = _drop_ended(commit, q, state, left, before, read, short=True)
        _forget(commit, [seq for (seq,) in gone])
        left -= len(gone)
        if left <= 0:
            break
    results = () if call.keep_results else ("trim_results",)
    for name in (*results, "trim_idempotency_keys", "trim_group_rates"):
        if left > 0:
            left -= len(db.rows(name, now, left))
    retime_ahead(commit, call.limit)
    if left > 0:
        journal.number_all(db)  # nobody may be reading the journal: records without offsets are never trimmed
        left -= journal.trim(db, now, now - call.journal_us, left, read)
    return call.limit - left
