"""Moves of messages that have left their index: verbs decide them as values, and `write_moves` writes them.

A message that ends or is held leaves its group's slot to the next one. Failed attempts are recorded here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tampu.engines.encoding import CANCELLED, CODE, DEAD, DELAYED, DONE, EXPIRED, HELD, READY
from tampu.engines.port import ENDING_VERB, Ending
from tampu.engines.rules import dies
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Ints, Values, blob
from tampu.engines.sql.rules.groups import leave_for_retry, leave_groups
from tampu.engines.sql.rules.indexes import enter_delayed, enter_ready, hold, restore_marks
from tampu.engines.sql.rules.message_row import MessageRow
from tampu.model.message import unpack_body
from tampu.model.reasons import DEADLINE_PASSED

_ENDED = (DONE, CANCELLED, EXPIRED)


class Move(NamedTuple):
    """Where a message goes, and what the journal says of it."""

    message: MessageRow
    state: int
    """ready, delayed, held, or one in which it has ended."""
    verb: str
    marker: int | None = None
    """Settle marker."""
    at: int | None = None
    """Until when it is delayed."""
    for_token: bool = False
    """It is delayed until there is a token of its group. What that means for its slot is done already."""
    reason: str = ""
    """Why it is dead or held."""
    worker: str | None = None
    detail: str | None = None


class Failed(NamedTuple):
    """An attempt that did not succeed."""

    message: MessageRow
    outcome: str
    worker: bytes | None
    error: str | None = None
    traceback: str | None = None


def write_moves(commit: Commit, moves: Sequence[Move]) -> None:
    """Put messages into their new indexes, in this order, and journal it."""
    by_state: dict[int, list[Move]] = {}
    for move in moves:
        commit.note(move.verb, move.state, move.message, move.worker, move.detail)
        by_state.setdefault(move.state, []).append(move)
    later, back, held = by_state.pop(DELAYED, []), by_state.pop(READY, []), by_state.pop(HELD, [])
    if later:
        enter_delayed(
            commit, [move.message for move in later], [move.at or 0 for move in later], [move.marker for move in later]
        )
    if back:
        enter_ready(commit, [move.message for move in back], [move.marker for move in back])
    if later:
        leave_for_retry(commit, (move.message for move in later if not move.for_token))
    hold(commit, [(move.message, None, move.marker, None, move.reason.encode()) for move in held])
    if later or back or held:
        restore_marks(commit, (move.message for move in (*later, *back, *held)))
    for state, ended in by_state.items():
        _end(commit, state, ended)
    over = [move.message for left in (held, *by_state.values()) for move in left]
    if over:
        leave_groups(commit, ((message.q, message.group, message.seq) for message in over))


def _end(commit: Commit, state: int, moves: Sequence[Move]) -> None:
    rows = [
        (message.seq, marker, message.q, message.attempts, reason.encode() if state == DEAD else state)
        for message, _, _, marker, _, _, reason, _, _ in moves
    ]
    if state == DEAD:
        commit.db.send("insert_dead", commit.now, Values("iiiib", rows))
        commit.count_all((move.message for move in moves), DEAD, 1)
        return
    assert state in _ENDED, f"no message ends as {state}"
    commit.db.send("insert_ended", commit.now, Values("iiiii", rows))
    by_queue: dict[int, list[int]] = {}
    for move in moves:
        by_queue.setdefault(move.message.q, []).append(move.message.seq)
    for q, seqs in by_queue.items():
        commit.ended(q, state, seqs)


def end_waiting(commit: Commit, ending: Sequence[tuple[MessageRow, Ending]], actor: str | None = None) -> None:
    """End messages that nobody works on and that have left their index. ``actor`` asked for it."""
    dead = [(message, how.error) for message, how in ending if CODE[how.state] == DEAD]
    write_failures(commit, [Failed(message, "reject", blob(actor), error) for message, error in dead])
    moves = []
    for message, how in ending:
        verb, detail = ENDING_VERB[how.state], how.reason or None
        moves.append(Move(message, CODE[how.state], verb, reason=how.reason, worker=actor, detail=detail))
    write_moves(commit, moves)


def expiry_moves(commit: Commit, messages: Sequence[MessageRow]) -> list[Move]:
    """Decide what becomes of messages that are past their expiry: expired or dead."""
    bodies = dict(commit.db.rows("select_long_bodies", Ints(message.seq for message in messages))) if messages else {}
    moves = []
    for message in messages:
        body = bodies.get(message.seq)
        if body is not None and message.expires and dies(unpack_body(body), message.expires):
            moves.append(Move(message, DEAD, "expire", reason=DEADLINE_PASSED, detail=DEADLINE_PASSED))
        else:
            moves.append(Move(message, EXPIRED, "expire"))
    return moves


def write_failures(commit: Commit, failed: Sequence[Failed]) -> None:
    """Store failed attempts, for the history of the messages."""
    if failed:
        rows = [
            (message.seq, message.attempts, outcome.encode(), worker, blob(error), blob(traceback))
            for message, outcome, worker, error, traceback in failed
        ]
        commit.db.send("insert_failures", commit.now, Values("iibbbb", rows))
