"""Puts messages into the indexes ready, delayed and held, and takes them out.

A waiting message may have marks: rows in `key` and `expiry` by which it is found. They exist only while it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tampu.engines.encoding import DELAYED, HELD, READY
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Ints, Values
from tampu.engines.sql.rules.message_row import Held, MessageRow, Waiting


def enter_ready(commit: Commit, messages: Sequence[MessageRow], leases: Sequence[int | None]) -> None:
    """Put messages at the back of their rank, in this order."""
    if not messages:
        return
    places = zip(messages, commit.turns.ranks_of(messages), commit.numbers(len(messages)), leases, strict=True)
    rows = [(rank, pos, message.seq, lease, message.q, message.attempts) for message, rank, pos, lease in places]
    commit.db.send("insert_ready", Values("iiiiii", rows))
    for message in messages:
        commit.count(message.q, READY, 1)
        commit.became_ready(message.q, 1)


def enter_delayed(
    commit: Commit, messages: Sequence[MessageRow], times: Sequence[int], leases: Sequence[int | None]
) -> None:
    if not messages:
        return
    rows = [
        (message.seq, at, lease, message.q, message.attempts)
        for message, at, lease in zip(messages, times, leases, strict=True)
    ]
    commit.db.send("insert_delayed", Values("iiiii", rows))
    commit.count_all(messages, DELAYED, 1)
    commit.falls_due(min(times))


def start(commit: Commit, waiting: Sequence[Waiting]) -> list[int]:
    """Put messages into ready, or into delayed if run_at is in the future; returns their states."""
    later, at_once, states = [], [], []
    for message, run_at, lease in waiting:
        if run_at is not None and run_at > commit.now:
            later.append((message, run_at, lease))
            states.append(DELAYED)
        else:
            at_once.append((message, lease))
            states.append(READY)
    if later:
        enter_delayed(commit, *zip(*later, strict=True))
    if at_once:
        enter_ready(commit, *zip(*at_once, strict=True))
    return states


def hold(commit: Commit, held: Sequence[Held]) -> None:
    if not held:
        return
    rows = [
        (message.seq, run_at, lease, message.q, message.attempts, group, reason)
        for message, run_at, lease, group, reason in held
    ]
    commit.db.send("insert_held", Values("iiiiibb", rows))
    commit.count_all((message for message, *_ in held), HELD, 1)


def withdraw(commit: Commit, seqs: Sequence[int]) -> dict[int, MessageRow]:
    """Take messages out of ready, delayed or held and drop their marks; returns those that were there."""
    if not seqs:
        return {}
    found: dict[int, MessageRow] = {}
    for *row, state in commit.db.rows("remove_waiting", Ints(seqs)):
        message = MessageRow(*row)
        found[message.seq] = message
        commit.count(message.q, state, -1)
    drop_marks(commit, [message.seq for message in found.values() if message.named or message.expires is not None])
    return found


def restore_marks(commit: Commit, messages: Iterable[MessageRow]) -> None:
    """Restore the expiry of messages that wait again, and the key if no newer message has it."""
    marked = [message for message in messages if message.named or message.expires is not None]
    if marked:
        commit.db.send("restore_keys_and_expiries", Ints(message.seq for message in marked))
        for message in marked:
            if message.expires is not None:
                commit.falls_due(message.expires)


def drop_marks(commit: Commit, seqs: Sequence[int]) -> None:
    """Delete expiry and key of messages that no longer wait."""
    if seqs:
        commit.db.send("delete_keys_and_expiries", Ints(seqs))
