"""Many messages that differ in their queue and body only, with a few statements.

All bodies are bound as one value, which SQLite cuts: a row takes half the time that it takes with `executemany`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tampu.engines.sql.db import Blobs, Ints
from tampu.engines.sqlite.ids import STEP

if TYPE_CHECKING:
    from tampu.engines.sqlite.database import Db

SHIFT = 31
"""In a list of bodies for ``json_each``: the start of each, shifted by this, plus its length."""
_MOST_BYTES = 1 << 26
"""Of bodies in one value."""


def publish_copies(db: Db, now: int, _ahead: int | None, most: int, qs: Ints, seqs: Ints, bodies: Blobs) -> None:
    """Store messages in several queues, ready at rank 0; as many of the numbers for each queue as there are bodies."""
    _insert(db, now, most, qs, seqs, bodies)
    count = len(bodies)
    for q, first, last in zip(qs, seqs[::count], seqs[count - 1 :: count], strict=True):
        db.send("insert_run", q, 0, first, first, 0, None, last)


def publish_ended(
    db: Db, q: int, now: int, _ahead: int | None, most: int, state: int, seqs: Ints, bodies: Blobs
) -> None:
    """Store messages of one queue that end at once."""
    _insert(db, now, most, Ints([q]), seqs, bodies)
    db.send("insert_ended_at_once", q, state, now, seqs)


def insert_correlations(db: Db, words: Blobs, seqs: Ints) -> None:
    """Record the hashes of correlation ids, which all have the same length."""
    db.send("insert_correlation_words", b"".join(word or b"" for word in words), seqs)


def _insert(db: Db, now: int, most: int, qs: Ints, seqs: Ints, bodies: Blobs) -> None:
    """The numbers are evenly spaced, as those of one commit are."""
    first = seqs[0] or 0
    for start, some in _pieces([body or b"" for body in bodies]):
        ends = list(itertools.accumulate(map(len, some)))
        spans = [end - len(body) << SHIFT | len(body) for end, body in zip(ends, some, strict=True)]
        apart = STEP * len(bodies)
        db.send("insert_copies", first + STEP * start, apart, now, most, b"".join(some), qs, Ints(spans))


def _pieces(bodies: Sequence[bytes]) -> Iterator[tuple[int, Sequence[bytes]]]:
    """(index of its first body, bodies) of pieces that are not too large for one value."""
    start, size = 0, 0
    for at, body in enumerate(bodies):
        if size and size + len(body) > _MOST_BYTES:
            yield start, bodies[start:at]
            start, size = at, 0
        size += len(body)
    yield start, bodies[start:] if start else bodies
