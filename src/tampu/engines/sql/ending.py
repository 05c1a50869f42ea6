"""How messages end, and what is kept of attempts that failed. Who ends leaves its group's place to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tampu.engines.codes import DEAD, EXPIRED
from tampu.engines.deciding import dies
from tampu.engines.sql.card import Card
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs, Ints, blob
from tampu.engines.sql.lanes import leave_lanes
from tampu.model.message import unpack_body
from tampu.model.reasons import DEADLINE_PASSED


class Failed(NamedTuple):
    """An attempt that did not succeed."""

    card: Card
    outcome: str
    worker: bytes | None
    error: str | None = None
    traceback: str | None = None


def expire(commit: Commit, cards: Sequence[Card]) -> None:
    """Messages that waited past their expiry, and have left their index: they are expired, or dead."""
    if not cards:
        return
    long = dict(commit.db.rows("select_long_bodies", Ints(card.seq for card in cards)))
    dead = {c.seq for c in cards if c.seq in long and c.expires and dies(unpack_body(long[c.seq]), c.expires)}
    for card in cards:
        if card.seq in dead:
            commit.note("expire", DEAD, card, None, DEADLINE_PASSED)
        else:
            commit.note("expire", EXPIRED, card)
    over = [card for card in cards if card.seq not in dead]
    end(commit, EXPIRED, over, [None] * len(over), leaves=False)
    bury(commit, [(card, None, DEADLINE_PASSED) for card in cards if card.seq in dead], leaves=False)
    leave_lanes(commit, ((card.q, card.lane, card.seq) for card in cards))


def end(
    commit: Commit, state: int, cards: Sequence[Card], traces: Sequence[int | None], *, leaves: bool = True
) -> None:
    """Messages that have left their index end as ``state``. Without ``leaves`` the caller lets them leave their places,
    when all that end together have ended."""
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
    if leaves:
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


def bury(commit: Commit, dead: Sequence[tuple[Card, int | None, str]], *, leaves: bool = True) -> None:
    """(card, trace, reason): the messages are dead; somebody may replay them. ``leaves`` as in `end`."""
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
    if leaves:
        leave_lanes(commit, ((card.q, card.lane, card.seq) for card, _, _ in dead))
