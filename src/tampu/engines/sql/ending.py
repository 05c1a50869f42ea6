"""How messages end, and what is kept of attempts that failed. Who ends leaves its group's place to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tampu.engines.codes import DEAD
from tampu.engines.sql.card import Card
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs, Ints, blob
from tampu.engines.sql.lanes import leave_lanes


class Failed(NamedTuple):
    """An attempt that did not succeed."""

    card: Card
    outcome: str
    worker: bytes | None
    error: str | None = None
    traceback: str | None = None


def end(commit: Commit, state: int, cards: Sequence[Card], traces: Sequence[int | None]) -> None:
    """Messages that have left their index end as ``state``."""
    if not cards:
        return
    commit.db.send(
        "insert_ended",
        commit.now,
        Ints(card.seq for card in cards),
        Ints(traces),
        Ints(card.q for card in cards),
        Ints(card.attempts for card in cards),
        Ints([state] * len(cards)),
    )
    seqs: dict[int, list[int]] = {}
    for card in cards:
        seqs.setdefault(card.q, []).append(card.seq)
    for q, ended in seqs.items():
        commit.ended(q, state, ended)
    leave_lanes(commit, ((card.q, card.lane, card.seq) for card in cards))


def write_failures(commit: Commit, failed: Sequence[Failed]) -> None:
    """Keep what went wrong, for the history of the messages."""
    if failed:
        commit.db.send(
            "insert_failures",
            commit.now,
            Ints(f.card.seq for f in failed),
            Ints(f.card.attempts for f in failed),
            Blobs(f.outcome.encode() for f in failed),
            Blobs(f.worker for f in failed),
            Blobs(blob(f.error) for f in failed),
            Blobs(blob(f.traceback) for f in failed),
        )


def bury(commit: Commit, dead: Sequence[tuple[Card, int | None, str]]) -> None:
    """(card, trace, reason): the messages are dead; somebody may replay them."""
    if not dead:
        return
    commit.db.send(
        "insert_dead",
        commit.now,
        Ints(card.seq for card, _, _ in dead),
        Ints(trace for _, trace, _ in dead),
        Ints(card.q for card, _, _ in dead),
        Ints(card.attempts for card, _, _ in dead),
        Blobs(reason.encode() for _, _, reason in dead),
    )
    commit.count_all((card for card, _, _ in dead), DEAD, 1)
    leave_lanes(commit, ((card.q, card.lane, card.seq) for card, _, _ in dead))
