"""What the moves have in common: columns out of rows, cards, and what the index in Redis is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tampu.engines.mariadb.index import Place
from tampu.engines.mariadb.wire import Rows, Wire
from tampu.engines.sql.db import Ints, Uuids

Rest = Callable[[], Rows]
"""What is left to do when the first statement of a move has been sent."""


def entered(wire: Wire, places: Sequence[Place]) -> None:
    """These became ready: the index is told after the commit, or `stale` says in it that it lacks them."""
    if not places:
        return
    if wire.index is not None and wire.index.up:
        wire.entered.extend(places)
    elif wire.index is not None or wire.guest == "mark_index_stale":
        wire.ask("mark_index_stale")
    elif wire.guest is not None:
        wire.ask(wire.guest, *ints(places, 3))


def left(wire: Wire, places: Iterable[Place]) -> None:
    """These are not ready any more. If the index is not told, it proposes them in vain."""
    if wire.index is not None:
        wire.left.extend(places)


def ints(rows: Sequence[Sequence[Any]], width: int) -> list[Ints]:
    return [Ints(row[column] for row in rows) for column in range(width)]


def by_queue(rows: Iterable[tuple[Any, Any]]) -> dict[int, list[Any]]:
    """What is given as (queue, value), by queue: mostly there is one."""
    found: dict[int, list[Any]] = {}
    for q, value in rows:
        found.setdefault(q, []).append(value)
    return found


def ids_of(ids: Iterable[Any]) -> Uuids:
    return Uuids(None if id is None else id.bytes for id in ids)


def with_attempts(message: Sequence[Any], attempts: int) -> tuple[Any, ...]:
    """A message row of `select_rows`, with its attempts."""
    seq, q, _, *rest = message
    return (seq, q, attempts, *rest)


def rows_with_attempts(wire: Wire, rows: Rows) -> Rows:
    """The cards of (seq, attempts), by growing seq."""
    attempts = dict(rows)
    found = wire.ask("select_rows", Ints(attempts)).get()
    return [(seq, q, attempts[seq], *rest) for seq, q, _, *rest in sorted(found)]


def nothing() -> Rows:
    return []
