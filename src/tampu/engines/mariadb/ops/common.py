"""Helpers of the operations: columns from rows, message rows, and changes for the index in Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tampu.engines.mariadb.index import Place
from tampu.engines.mariadb.wire import Rows, Wire
from tampu.engines.sql.db import Ints

Rest = Callable[[], Rows]
"""The second half of an operation, to call after its first statement was sent."""


def entered(wire: Wire, places: Sequence[Place]) -> None:
    """Messages became ready: note them for the index, which is updated after the commit, or mark the index stale."""
    if not places:
        return
    if wire.index is not None and wire.index.up:
        wire.entered.extend(places)
    elif wire.index is not None or wire.stale_statement == "mark_index_stale":
        wire.ask("mark_index_stale")
    elif wire.stale_statement is not None:
        wire.ask(wire.stale_statement, *ints(places, 3))


def left(wire: Wire, places: Iterable[Place]) -> None:
    """Messages are no longer ready. If the index is not updated, it proposes them in vain, which does no harm."""
    if wire.index is not None:
        wire.left.extend(places)


def ints(rows: Sequence[Sequence[Any]], width: int) -> list[Ints]:
    return [Ints(row[column] for row in rows) for column in range(width)]


def by_queue(rows: Iterable[tuple[Any, Any]]) -> dict[int, list[Any]]:
    """Group (queue, value) pairs by queue."""
    found: dict[int, list[Any]] = {}
    for q, value in rows:
        found.setdefault(q, []).append(value)
    return found


def with_attempts(message: Sequence[Any], attempts: int) -> tuple[Any, ...]:
    """A message row of `select_rows` with its attempts, which are in another table."""
    seq, q, _, *rest = message
    return (seq, q, attempts, *rest)


def rows_with_attempts(wire: Wire, rows: Rows) -> Rows:
    """The message rows of (seq, attempts), in the order of seq."""
    attempts = dict(rows)
    found = wire.ask("select_rows", Ints(attempts)).get()
    return [(seq, q, attempts[seq], *rest) for seq, q, _, *rest in sorted(found)]


def nothing() -> Rows:
    return []
