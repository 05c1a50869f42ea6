"""extend, cancel, free, replay and its undo, rerank, regroup.

Contract of each: one outcome per item, in order; an id that is not the tenant's is NotFound; nothing else changes.
If others move a message at the same time, it is looked up again: the outcome tells its final state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from tampu.engines.encoding import CODE, DEAD, HELD, LEASED, STATES, parse_receipt
from tampu.engines.groups import MOST_FREED, Limits, stored
from tampu.engines.port import Cancel, Extend, Extended, Free, Regroup, Replay, Rerank, UndoReplay
from tampu.engines.rules import lost, not_waiting, replaced
from tampu.engines.sql import read
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Ints, Values
from tampu.engines.sql.locks import fair_lock
from tampu.engines.sql.rules.correlations import correlate
from tampu.engines.sql.rules.group_rates import retime
from tampu.engines.sql.rules.groups import admit, fill, leave_groups, lock_groups, set_limits
from tampu.engines.sql.rules.indexes import restore_marks, withdraw
from tampu.engines.sql.rules.message_row import MessageRow, Waiting
from tampu.engines.sql.rules.moves import Move, end_waiting, write_moves
from tampu.model.errors import InvalidState, NotFound, TampuError
from tampu.model.message import unpack_body
from tampu.model.outcome import Outcome
from tampu.model.rank import FAIR, rank
from tampu.model.states import TERMINAL, State
from tampu.model.values import pack_body

_TRIES = 5
NOBODY = 0
"""No message has this number: `leave_groups` then frees no slot and only fills those that are free."""


def extend(commit: Commit, calls: Sequence[Extend]) -> list[list[Extended | TampuError] | TampuError]:
    """Set leases to end this long after now. Not journaled."""
    sooner: dict[tuple[int, int], list[int]] = {}
    replies: list[list[Extended | TampuError] | TampuError] = [_extend(commit, call, sooner) for call in calls]
    commit.schedule_reap([(until, lease, seqs) for (until, lease), seqs in sooner.items()])
    return replies


def _extend(commit: Commit, call: Extend, sooner: dict[tuple[int, int], list[int]]) -> list[Extended | TampuError]:
    """``sooner`` gets the leases that end earlier now, by (until, lease)."""
    replies: list[Extended | TampuError] = []
    targets: dict[tuple[int, int], tuple[int, int]] = {}
    keys: list[tuple[int, int] | TampuError] = []
    messages = read.find(commit.db, commit.registry, call.tenant, call.ids) if call.ids else {}
    for n, (queue, receipt, lease_us) in enumerate(call.items):
        try:
            lease_key = parse_receipt(receipt)
            if call.ids and messages.get(call.ids[n], (None,))[0] != lease_key[0]:
                raise lost()
        except TampuError as error:
            keys.append(error)
            continue
        q = commit.registry.number(commit.db, call.tenant, queue)
        keys.append(lease_key)
        if q is not None:
            targets[lease_key] = (q, lease_us)
    wanted = sorted((*lease_key, *target) for lease_key, target in targets.items())
    rows = commit.db.rows("extend_leases", commit.now, Values("iiii", wanted))
    found = {(seq, lease): Extended(until, bool(cancel)) for seq, lease, until, cancel, _ in rows}
    for seq, lease, until, _, before in rows:
        if until < before:  # the claim's row is due no later than its leases: only a shorter lease needs another row
            sooner.setdefault((until, lease), []).append(seq)
    for key in keys:
        if isinstance(key, TampuError):
            replies.append(key)
        else:
            replies.append(found.get(key) or lost())
    return replies


Act = Callable[[Commit, dict[int, str]], dict[int, int | TampuError]]
"""Does something to messages, given as {seq: id}; returns a state number or an error by seq. Others are gone."""


def each_message(commit: Commit, tenant: str, ids: Sequence[str], act: Act) -> list[Outcome]:
    """The outcome for each id of what ``act`` does to the messages."""
    found = read.find(commit.db, commit.registry, tenant, ids) if ids else {}
    done = act(commit, dict(sorted((seq, id) for id, (seq, _) in found.items())))
    outcomes = []
    for id in ids:
        if id not in found:
            outcomes.append(Outcome(id, None, NotFound(f"no message {id}", field="id")))
            continue
        seq, _ = found[id]
        code = done.get(seq, InvalidState("the message is gone"))
        outcomes.append(Outcome(id, None, code) if isinstance(code, TampuError) else Outcome(id, STATES[code]))
    return outcomes


def cancel(commit: Commit, call: Cancel) -> list[Outcome]:
    return each_message(commit, call.tenant, call.ids, functools.partial(_cancel, call))


def _cancel(call: Cancel, commit: Commit, seqs: dict[int, str]) -> dict[int, int | TampuError]:
    done: dict[int, int | TampuError] = {}
    how = call.ending
    for turn in range(_TRIES):
        left = [seq for seq in seqs if seq not in done]
        if not left:
            break
        messages = list(withdraw(commit, left).values())
        end_waiting(commit, [(message, how) for message in messages], call.actor)
        done.update((message.seq, CODE[how.state]) for message in messages)
        left = [seq for seq in left if seq not in done]
        leased = commit.db.rows("request_cancel", Ints(left)) if left and call.dead is None else []
        for seq, q, attempts, stamp, own in leased:
            message = MessageRow(seq, q, attempts, stamp, own, None, 0, 0, None, False)
            commit.note("ask_cancel", LEASED, message, call.actor, call.reason)
            done[seq] = LEASED
        refused = (*TERMINAL, State.LEASED) if call.dead is not None else TERMINAL
        for seq, (code, reason) in read.states(commit.db, [seq for seq in left if seq not in done]).items():
            if code == CODE[how.state] and reason == call.dead:
                done[seq] = code
            elif STATES[code] in refused or turn == _TRIES - 1:  # or others keep moving it
                done[seq] = not_waiting(call, STATES[code])
    return done


def free(commit: Commit, call: Free) -> list[Outcome]:
    return _each_once(commit, call.tenant, call.ids, functools.partial(_free, call), "held")


def _each_once(commit: Commit, tenant: str, ids: Sequence[str], act: Act, wanted: str) -> list[Outcome]:
    """As `each_message`, for messages in the state ``wanted``: an id that is given twice succeeds only once."""

    def act_on_wanted(commit: Commit, seqs: dict[int, str]) -> dict[int, int | TampuError]:
        done = act(commit, seqs)
        for seq, (code, _) in read.states(commit.db, [seq for seq in seqs if seq not in done]).items():
            done[seq] = InvalidState(f"the message is {STATES[code]}, not {wanted}")
        return done

    outcomes = each_message(commit, tenant, ids, act_on_wanted)
    seen = set()
    for i, outcome in enumerate(outcomes):
        if outcome.ok and outcome.id in seen:
            outcomes[i] = Outcome(outcome.id, None, InvalidState(f"the message is {outcome.state}, not {wanted}"))
        seen.add(outcome.id)
    return outcomes


def _free(call: Free, commit: Commit, seqs: dict[int, str]) -> dict[int, int | TampuError]:
    going: list[Waiting] = []
    done: dict[int, int | TampuError] = {}
    for *row, run_at, waits in commit.db.rows("release_held", Ints(seqs)) if seqs else []:
        message = MessageRow(*row)
        if waits:
            hint = "it becomes ready by itself"
            done[message.seq] = InvalidState("the message waits for its turn in its group", hint=hint)
        else:
            going.append((message, run_at, None))
    commit.count_all((message for message, _, _ in going), HELD, -1)
    codes = admit(commit, going)
    if call.bodies:
        _replace_bodies(call, commit, {message: seqs[message.seq] for message, _, _ in going})
    for (message, _, _), code in zip(going, codes, strict=True):
        commit.note("free", code, message, call.actor)
        done[message.seq] = code
    return done


def _replace_bodies(call: Free, commit: Commit, freed: Mapping[MessageRow, str]) -> None:
    """Give freed messages the bodies that the call has for their ids."""
    given: dict[str, bytes | None] = {}
    for id, packed in zip(call.ids, call.bodies, strict=True):
        given.setdefault(id, packed)
    packed_bodies = [(message, given[id]) for message, id in freed.items()]
    bodies = {message: unpack_body(packed) for message, packed in packed_bodies if packed is not None}
    if bodies:
        old = read.load(commit.db, commit.registry, [message.seq for message in bodies])
        new = [(m.seq, pack_body(replaced(old[m.seq].body, body))) for m, body in bodies.items()]
        commit.db.send("replace_bodies", Values("ib", new))
        found = [(m.seq, call.tenant, b.correlation_id) for m, b in bodies.items() if b.correlation_id is not None]
        if found:
            correlate(commit, found)
    for message, body in bodies.items():
        commit.note("replace", HELD, message, call.actor, type=body.type)


def replay(commit: Commit, call: Replay) -> list[Outcome]:
    return _each_once(commit, call.tenant, call.ids, functools.partial(_replay, call), "dead")


def _replay(call: Replay, commit: Commit, seqs: dict[int, str]) -> dict[int, int | TampuError]:
    most = dict(zip(call.ids, call.max_attempts, strict=True))
    attempts = Values("ii", [(seq, most[id]) for seq, id in seqs.items()])
    messages = [MessageRow(*row) for row in commit.db.rows("revive_dead", commit.now, attempts)] if seqs else []
    messages.sort()
    done: dict[int, int | TampuError] = {}
    commit.count_all(messages, DEAD, -1)
    restore_marks(commit, messages)
    for message, code in zip(messages, admit(commit, [(message, None, None) for message in messages]), strict=True):
        commit.note("replay", code, message, call.actor)
        done[message.seq] = code
    return done


def undo_replay(commit: Commit, call: UndoReplay) -> list[Outcome]:
    return _each_once(commit, call.tenant, call.ids, functools.partial(_undo_replay, call), "waiting for its delivery")


def _undo_replay(call: UndoReplay, commit: Commit, seqs: dict[int, str]) -> dict[int, int | TampuError]:
    """Messages are locked before their attempts are read: a claim either has them already, or does not get them."""
    before = dict(zip(call.ids, zip(call.reasons, call.attempts, strict=True), strict=True))
    locked = [MessageRow(*row).seq for row in commit.db.rows("lock_waiting", Ints(seqs))] if seqs else []
    untouched = [seq for seq, attempts in read.attempts(commit.db, locked).items() if not attempts]
    moves = []
    for seq, message in sorted(withdraw(commit, untouched).items()):
        reason, attempts = before[seqs[seq]]
        dead = message._replace(attempts=attempts)
        moves.append(Move(dead, DEAD, "reject", reason=reason, worker=call.actor, detail=reason or None))
    write_moves(commit, moves)
    return {move.message.seq: DEAD for move in moves}


def rerank(commit: Commit, call: Rerank) -> int | None:
    """Give live and dead messages their rank in the new ordering, a bounded number per call."""
    q = commit.registry.number(commit.db, call.tenant, call.queue)
    if q is None:
        return None
    if call.ordering == "fair":
        commit.locks.take([fair_lock(call.tenant, call.queue)])
    rows = commit.db.rows("select_rows_to_rerank", q, call.after, call.limit)
    changes: list[tuple[int, int, int]] = []
    for seq, created, packed, old, is_ready in rows:
        body = unpack_body(packed)
        index_rank = new = rank(call.ordering, call.ageing_us, body.priority, body.deadline, created)
        if new != old:
            if new == FAIR and is_ready:
                (index_rank,) = commit.turns.ranks([(q, (body.group or "").encode())])
            changes.append((seq, index_rank, new))
    if changes:
        commit.db.send("rerank", q, Values("iii", changes))
    if len(rows) < call.limit:
        return None
    last, *_ = rows[-1]
    return int(last)


def regroup(commit: Commit, call: Regroup) -> str | None:
    """Set the slots and the rate of groups, and admit messages that may run now, a bounded number per call."""
    q = commit.registry.number(commit.db, call.tenant, call.queue)
    if q is None:
        return None
    limits = Limits(stored(call.slots), call.group_rate)
    set_limits(commit, q, limits)
    groups: list[bytes] = [group for (group,) in commit.db.rows("page_groups", q, call.after.encode(), call.limit)]
    step, admitted = max(1, call.limit // MOST_FREED), 0
    for some in (groups[start : start + step] for start in range(0, len(groups), step)):
        retime(commit, q, some, limits)
        if limits.group_rate is None:
            admitted += leave_groups(commit, ((q, group, NOBODY) for group in some))
        else:
            admitted += fill(commit, lock_groups(commit, {(q, group) for group in some}))
        if admitted >= call.limit:
            return some[-1].decode()
    return groups[-1].decode() if len(groups) == call.limit else None
