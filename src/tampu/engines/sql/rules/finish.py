"""Ends messages and records failed attempts. A message that ends leaves its group's slot to the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tampu.engines.encoding import DEAD, EXPIRED
from tampu.engines.rules import dies
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs, Ints, blob
from tampu.engines.sql.rules.groups import leave_groups
from tampu.engines.sql.rules.message_row import MessageRow
from tampu.model.message import unpack_body
from tampu.model.reasons import DEADLINE_PASSED


class Failed(NamedTuple):
    """An attempt that did not succeed."""

    message: MessageRow
    outcome: str
    worker: bytes | None
    error: str | None = None
    traceback: str | None = None


def expire(commit: Commit, messages: Sequence[MessageRow]) -> None:
    """End messages that are past their expiry as expired or dead. They have left their index already."""
    if not messages:
        return
    long = dict(commit.db.rows("select_long_bodies", Ints(message.seq for message in messages)))
    dead = {c.seq for c in messages if c.seq in long and c.expires and dies(unpack_body(long[c.seq]), c.expires)}
    for message in messages:
        if message.seq in dead:
            commit.note("expire", DEAD, message, None, DEADLINE_PASSED)
        else:
            commit.note("expire", EXPIRED, message)
    over = [message for message in messages if message.seq not in dead]
    end(commit, EXPIRED, over, [None] * len(over), leaves=False)
    dead_letter(commit, [(message, None, DEADLINE_PASSED) for message in messages if message.seq in dead], leaves=False)
    leave_groups(commit, ((message.q, message.group, message.seq) for message in messages))


def end(
    commit: Commit, state: int, messages: Sequence[MessageRow], traces: Sequence[int | None], *, leaves: bool = True
) -> None:
    """End messages as ``state``. They have left their index already. Without ``leaves`` the caller frees their slots,
    after all messages that end together."""
    if not messages:
        return
    commit.db.send(
        "insert_ended",
        commit.now,
        Ints(message.seq for message in messages),
        Ints(traces),
        Ints(message.q for message in messages),
        Ints(message.attempts for message in messages),
        Ints([state] * len(messages)),
    )
    seqs: dict[int, list[int]] = {}
    for message in messages:
        seqs.setdefault(message.q, []).append(message.seq)
    for q, ended in seqs.items():
        commit.ended(q, state, ended)
    if leaves:
        leave_groups(commit, ((message.q, message.group, message.seq) for message in messages))


def write_failures(commit: Commit, failed: Sequence[Failed]) -> None:
    """Store failed attempts, for the history of the messages."""
    if failed:
        commit.db.send(
            "insert_failures",
            commit.now,
            Ints(f.message.seq for f in failed),
            Ints(f.message.attempts for f in failed),
            Blobs(f.outcome.encode() for f in failed),
            Blobs(f.worker for f in failed),
            Blobs(blob(f.error) for f in failed),
            Blobs(blob(f.traceback) for f in failed),
        )


def dead_letter(commit: Commit, dead: Sequence[tuple[MessageRow, int | None, str]], *, leaves: bool = True) -> None:
    """(message, settle marker, reason): make messages dead. ``leaves`` as in `end`."""
    if not dead:
        return
    commit.db.send(
        "insert_dead",
        commit.now,
        Ints(message.seq for message, _, _ in dead),
        Ints(trace for _, trace, _ in dead),
        Ints(message.q for message, _, _ in dead),
        Ints(message.attempts for message, _, _ in dead),
        Blobs(reason.encode() for _, _, reason in dead),
    )
    commit.count_all((message for message, _, _ in dead), DEAD, 1)
    if leaves:
        leave_groups(commit, ((message.q, message.group, message.seq) for message, _, _ in dead))
