"""How messages come to wait, in ready, delayed or held, and how they are taken out again.

Who waits may have marks: an expiry and a key, by which the message is found. They go when it no longer waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tampu.engines.codes import DELAYED, HELD, READY
from tampu.engines.sql.card import Card, Waiting
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs, Ints


def enter_ready(commit: Commit, cards: Sequence[Card], leases: Sequence[int | None]) -> None:
    """Put messages at the back of their rank, in this order."""
    if not cards:
        return
    commit.db.send(
        "insert_ready",
        Ints(commit.turns.ranks_of(cards)),
        Ints(commit.numbers(len(cards))),
        Ints(card.seq for card in cards),
        Ints(leases),
        Ints(card.q for card in cards),
        Ints(card.attempts for card in cards),
    )
    for card in cards:
        commit.count(card.q, READY, 1)
        commit.became_ready(card.q, 1)


def enter_delayed(commit: Commit, cards: Sequence[Card], times: Sequence[int], leases: Sequence[int | None]) -> None:
    if not cards:
        return
    commit.db.send(
        "insert_delayed",
        Ints(card.seq for card in cards),
        Ints(times),
        Ints(leases),
        Ints(card.q for card in cards),
        Ints(card.attempts for card in cards),
    )
    commit.count_all(cards, DELAYED, 1)
    commit.falls_due(min(times))


def start(commit: Commit, waiting: Sequence[Waiting]) -> list[int]:
    """Let messages go to ready, or to delayed if their time has not come; the states they are in then."""
    now = commit.now
    later = [(card, run_at, lease) for card, run_at, lease in waiting if run_at is not None and run_at > now]
    at_once = [(card, lease) for card, run_at, lease in waiting if run_at is None or run_at <= now]
    enter_delayed(commit, [card for card, _, _ in later], [at for _, at, _ in later], [lease for _, _, lease in later])
    enter_ready(commit, [card for card, _ in at_once], [lease for _, lease in at_once])
    return [DELAYED if run_at is not None and run_at > now else READY for _, run_at, _ in waiting]


def hold(commit: Commit, held: Sequence[tuple[Card, int | None, bytes | None, bytes]]) -> None:
    """Rows are (card, run_at, the lane it waits for, reason)."""
    if not held:
        return
    commit.db.send(
        "insert_held",
        Ints(card.seq for card, _, _, _ in held),
        Ints(run_at for _, run_at, _, _ in held),
        Ints(card.q for card, _, _, _ in held),
        Ints(card.attempts for card, _, _, _ in held),
        Blobs(lane for _, _, lane, _ in held),
        Blobs(reason for _, _, _, reason in held),
    )
    commit.count_all((card for card, _, _, _ in held), HELD, 1)


def withdraw(commit: Commit, seqs: Sequence[int]) -> dict[int, Card]:
    """Take waiting messages out of ready, delayed or held, with key and expiry; those that waited."""
    if not seqs:
        return {}
    found: dict[int, Card] = {}
    for *columns, state in commit.db.rows("remove_waiting", Ints(seqs)):
        card = Card(*columns)
        found[card.seq] = card
        commit.count(card.q, state, -1)
    drop_marks(commit, [card.seq for card in found.values() if card.named or card.expires is not None])
    return found


def restore_marks(commit: Commit, cards: Iterable[Card]) -> None:
    """Messages that wait again take their expiry back, and their key if no newer message has it."""
    marked = [card for card in cards if card.named or card.expires is not None]
    if marked:
        commit.db.send("restore_keys_and_expiries", Ints(card.seq for card in marked))
        for card in marked:
            if card.expires is not None:
                commit.falls_due(card.expires)


def drop_marks(commit: Commit, seqs: Sequence[int]) -> None:
    """Messages that no longer wait give up their expiry and their key."""
    if seqs:
        commit.db.send("delete_keys_and_expiries", Ints(seqs))
