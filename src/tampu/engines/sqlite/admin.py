"""extend, cancel, free, replay, rerank, regroup: changes to stored messages that users and workers ask for.

Contract: one outcome per item, in order. An id that the tenant does not have is NotFound. Nothing else changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from tampu.engines.encoding import CANCELLED, DEAD, HELD, LEASED, STATES, parse_receipt
from tampu.engines.port import Cancel, Extend, Extended, Free, Regroup, Replay, Rerank
from tampu.engines.rules import lost
from tampu.engines.sqlite import ready
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.finish import end
from tampu.engines.sqlite.group_rates import retime_group
from tampu.engines.sqlite.groups import admit, fill_group, leave_groups, set_limits
from tampu.engines.sqlite.indexes import restore_marks, withdraw
from tampu.engines.sqlite.read import state_of
from tampu.model.errors import InvalidState, NotFound, TampuError
from tampu.model.message import unpack_body
from tampu.model.outcome import Outcome
from tampu.model.rank import FAIR, rank


def extend(commit: Commit, calls: Sequence[Extend]) -> list[list[Extended | TampuError] | TampuError]:
    """Leases run for the given time from now. Not journaled: only one small row changes."""
    sooner: dict[tuple[int, int], list[int]] = {}
    replies: list[list[Extended | TampuError] | TampuError] = [
        [_extend(commit, sooner, call.tenant, *item) for item in call.items] for call in calls
    ]
    for (until, lease), seqs in sooner.items():
        # The reaper looks at a claim only at the time of its row: an earlier end needs an earlier row.
        commit.schedule_reap(until, lease, seqs)
    return replies


def _extend(
    commit: Commit, sooner: dict[tuple[int, int], list[int]], tenant: str, queue: str, receipt: str, lease_us: int
) -> Extended | TampuError:
    try:
        seq, lease = parse_receipt(receipt)
    except TampuError as error:
        return error
    row = commit.db.execute("SELECT q, lease, until, cancel FROM tampu_leased WHERE seq = ?", (seq,)).fetchone()
    if row is None:
        return lost()
    q, current, old_until, cancel_requested = row
    if current != lease or q != commit.registry.number(commit.db, tenant, queue):
        return lost()
    until = commit.now + lease_us
    commit.db.execute("UPDATE tampu_leased SET until = ? WHERE seq = ?", (until, seq))
    if until < old_until:
        sooner.setdefault((until, lease), []).append(seq)
    return Extended(until, bool(cancel_requested))


def _each(
    commit: Commit, tenant: str, ids: Sequence[str], act: Callable[[Commit, int, int], int | TampuError]
) -> list[Outcome]:
    outcomes = []
    for id in ids:
        place = commit.find(tenant, id)
        if place is None:
            outcomes.append(Outcome(id, None, NotFound(f"no message {id}", field="id")))
            continue
        code = act(commit, *place)
        outcomes.append(Outcome(id, None, code) if isinstance(code, TampuError) else Outcome(id, STATES[code]))
    return outcomes


def cancel(commit: Commit, calls: Sequence[Cancel]) -> list[list[Outcome] | TampuError]:
    replies: list[list[Outcome] | TampuError] = []
    for call in calls:
        gone: dict[int, list[int]] = {}
        replies.append(_each(commit, call.tenant, call.ids, functools.partial(_cancel, gone)))
        for q, seqs in gone.items():
            leave_groups(commit, q, seqs)
    return replies


def _cancel(gone: dict[int, list[int]], commit: Commit, seq: int, q: int) -> int | TampuError:
    place = withdraw(commit, seq)
    if place is not None:
        _, attempts = place
        gone.setdefault(q, []).append(seq)
        end(commit, q, CANCELLED, [(seq, attempts, None)], leaves=False)
        commit.note("cancel", q, CANCELLED, seq, attempts)
        return CANCELLED
    leased = commit.db.execute("UPDATE tampu_leased SET cancel = 1 WHERE seq = ? RETURNING attempts", (seq,)).fetchone()
    if leased is not None:
        (attempts,) = leased
        commit.note("ask_cancel", q, LEASED, seq, attempts)
        return LEASED
    code = state_of(commit.db, q, seq)
    return code if code == CANCELLED else InvalidState(f"the message is {STATES[code]}: nothing to cancel")


def free(commit: Commit, calls: Sequence[Free]) -> list[list[Outcome] | TampuError]:
    return [_each(commit, call.tenant, call.ids, _free) for call in calls]


def _free(commit: Commit, seq: int, q: int) -> int | TampuError:
    row = commit.db.execute("SELECT run_at, attempts, lane FROM tampu_held WHERE seq = ?", (seq,)).fetchone()
    if row is None:
        return InvalidState(f"the message is {STATES[state_of(commit.db, q, seq)]}, not held")
    run_at, attempts, waits_in_group = row
    if waits_in_group is not None:
        return InvalidState("the message waits for its turn in its group", hint="it becomes ready by itself")
    rank_, group = commit.db.execute("SELECT rank, lane FROM tampu_message WHERE seq = ?", (seq,)).fetchone()
    commit.db.execute("DELETE FROM tampu_held WHERE seq = ?", (seq,))
    commit.count(q, HELD, -1)
    code = admit(commit, seq, q, rank_, run_at, attempts, group)
    commit.note("free", q, code, seq, attempts)
    return code


def replay(commit: Commit, calls: Sequence[Replay]) -> list[list[Outcome] | TampuError]:
    return [
        [
            outcome
            for id, max_attempts in zip(call.ids, call.max_attempts, strict=True)
            for outcome in _each(commit, call.tenant, [id], functools.partial(_replay, max_attempts))
        ]
        for call in calls
    ]


def _replay(max_attempts: int, commit: Commit, seq: int, q: int) -> int | TampuError:
    if commit.db.execute("DELETE FROM tampu_dead WHERE seq = ?", (seq,)).rowcount == 0:
        return InvalidState(f"the message is {STATES[state_of(commit.db, q, seq)]}, not dead")
    commit.count(q, DEAD, -1)
    # A replayed message is meant to run, so an expiry that has passed is dropped.
    commit.db.execute("UPDATE tampu_message SET expires = NULL WHERE seq = ? AND expires <= ?", (seq, commit.now))
    commit.db.execute(
        "UPDATE tampu_message SET max_attempts = ?1 WHERE seq = ?2 AND max_attempts <> ?1", (max_attempts, seq)
    )
    rank_, group = commit.db.execute("SELECT rank, lane FROM tampu_message WHERE seq = ?", (seq,)).fetchone()
    restore_marks(commit, [seq])
    code = admit(commit, seq, q, rank_, None, 0, group)
    commit.note("replay", q, code, seq, 0)
    return code


def rerank(commit: Commit, calls: Sequence[Rerank]) -> list[int | TampuError | None]:
    """Live and dead messages get the rank of the new ordering, a bounded number per commit."""
    return [_rerank(commit, call) for call in calls]


def _rerank(commit: Commit, call: Rerank) -> int | None:
    q = commit.registry.number(commit.db, call.tenant, call.queue)
    if q is None:
        return None
    last = None
    for table in ("tampu_ready", "tampu_delayed", "tampu_leased", "tampu_held", "tampu_dead"):
        last_seq = "t.last" if table == "tampu_ready" else "t.seq"
        rows = commit.db.execute(
            f"SELECT m.seq, m.rank, m.created, m.body FROM {table} t"  # noqa: S608 - constants
            f" CROSS JOIN tampu_message m ON m.seq BETWEEN t.seq AND {last_seq}"
            " WHERE t.q = ? AND t.seq > ? ORDER BY t.seq, m.seq LIMIT ?",
            (q, call.after, call.limit),
        ).fetchall()
        for seq, old, created, packed in rows:
            body = unpack_body(packed)
            new = rank(call.ordering, call.ageing_us, body.priority, body.deadline, created)
            if new == old:
                continue
            commit.db.execute("UPDATE tampu_message SET rank = ? WHERE seq = ?", (new, seq))
            if table == "tampu_ready":
                run = ready.take(commit.db, q, seq)
                assert run is not None
                _, pos, first, attempts, lease, _ = run
                place = new if new != FAIR else commit.turns.rank(q, body.group or "")
                commit.db.execute(ready.INSERT, (q, place, pos + seq - first, seq, attempts, lease, seq))
        if len(rows) == call.limit:
            # Resume where the slowest table stopped. Rows of the others are ranked again, to the same rank.
            last_of_table, *_ = rows[-1]
            last = last_of_table if last is None else min(last, last_of_table)
    return last


def regroup(commit: Commit, calls: Sequence[Regroup]) -> list[str | TampuError | None]:
    """Set the slots and the rate of groups, and admit the messages that may go now, a bounded number per commit."""
    return [_regroup(commit, call) for call in calls]


def _regroup(commit: Commit, call: Regroup) -> str | None:
    q = commit.registry.number(commit.db, call.tenant, call.queue)
    if q is None:
        return None
    set_limits(commit, q, call.slots, call.group_rate)
    rows = commit.db.execute(
        "SELECT DISTINCT lane FROM tampu_lane WHERE q = ? AND lane > ? ORDER BY lane LIMIT ?",
        (q, call.after, call.limit),
    ).fetchall()
    freed = 0
    group = None
    for (group,) in rows:
        retime_group(commit, q, group)
        freed += fill_group(commit, q, group)
        if freed >= call.limit:
            return str(group)
    return group if len(rows) == call.limit else None
