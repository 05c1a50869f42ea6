"""What is kept of attempts that failed, and how messages die."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tampu.engines.postgres.commit import Card, Commit
from tampu.engines.postgres.statements import Blobs, Ints, blob
from tampu.engines.sqlite.codes import DEAD


class Failed(NamedTuple):
    """An attempt that did not succeed."""

    card: Card
    outcome: str
    worker: bytes | None
    error: str | None = None
    traceback: str | None = None


def write_failures(commit: Commit, failed: Sequence[Failed]) -> None:
    """Keep what went wrong, for the history of the messages."""
    if failed:
        commit.db.send(
            "fail",
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
        "bury",
        commit.now,
        Ints(card.seq for card, _, _ in dead),
        Ints(trace for _, trace, _ in dead),
        Ints(card.q for card, _, _ in dead),
        Ints(card.attempts for card, _, _ in dead),
        Blobs(reason.encode() for _, _, reason in dead),
    )
    commit.count_all((card for card, _, _ in dead), DEAD, 1)
    commit.leave_lanes((card.q, card.lane, card.seq) for card, _, _ in dead)
