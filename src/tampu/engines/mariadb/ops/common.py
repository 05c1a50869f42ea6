"""Helpers of the operations: columns from rows, and message rows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tampu.engines.sql.db import Ints

if TYPE_CHECKING:
    from tampu.engines.mariadb.database import Db

Rows = list[Any]
Operation = Generator[None, None, Rows]
"""Sends its first statements, yields once, and does the rest when their rows are needed; returns rows."""


def start(operation: Operation) -> Callable[[], Rows]:
    """Begin an operation; call the result to have it do the rest and to get its rows."""
    next(operation)

    def rest() -> Rows:
        try:
            next(operation)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the generator's own return type
        raise AssertionError("an operation yields once")

    return rest


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


def rows_with_attempts(db: Db, rows: Rows) -> Rows:
    """The message rows of (seq, attempts), in the order of seq."""
    attempts = dict(rows)
    found = db.submit("select_rows", Ints(attempts)).get()
    return [(seq, q, attempts[seq], *rest) for seq, q, _, *rest in sorted(found)]
