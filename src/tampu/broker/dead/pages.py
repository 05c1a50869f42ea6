"""Walks the dead letters of several queues: queue by queue, by name, in each the oldest first.

Only the indexes of dead letters are read, page by page, at most `MOST_READ` messages for a call; live messages cost
nothing. A cursor is a queue and a place in its index, so pages do not slow down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tampu.broker import queue_cursor
from tampu.broker.core import Read, Steps
from tampu.broker.dead.filters import DeadFilter, one_queue
from tampu.engines import port
from tampu.model.message import Message, State

MOST_READ = 10_000
"""Dead letters that one call reads."""
_FIRST, _MOST = 32, 500
"""Messages that are read at once, before their size is known and at most."""
_PAGE_BYTES = 8 << 20


class Walk(msgspec.Struct):
    """Where a walk has ended."""

    read: int
    cursor: str | None
    """Where the next one goes on; None at the end."""


def walk(
    tenant: str,
    wanted: DeadFilter,
    after: str | None,
    each: Callable[[Message], None],
    *,
    most: int | None = None,
) -> Steps[Walk]:
    """Call ``each`` for the dead letters that match, at most ``most`` of them."""
    first, inner = queue_cursor.read(after, "dead letters")
    names: list[str] = yield Read(lambda engine: _queues(engine, tenant, wanted))
    read = found = 0
    room, size = _PAGE_BYTES, _FIRST
    for name in names:
        if name < first:
            continue
        place: tuple[Any, ...] | None = (inner or None) if name == first else None
        while True:
            if read >= MOST_READ or (most is not None and (found >= most or room <= 0)):
                return Walk(read, queue_cursor.write(name, place))
            page = yield from _page(tenant, name, place, min(size, MOST_READ - read))
            matching = _matching(page, wanted)
            while most is not None and len(matching) > most - found:  # a cursor marks the end of a page
                page = yield from _page(tenant, name, place, matching[most - found - 1] + 1)
                matching = _matching(page, wanted)
            for n in matching:
                each(page.messages[n])
                room -= _size(page.messages[n])
            found += len(matching)
            read += len(page.messages)
            if page.messages:  # those that follow may have the same size
                size = max(1, min(_MOST, _PAGE_BYTES // (sum(map(_size, page.messages)) // len(page.messages))))
            if page.cursor is None or (page.messages and wanted.is_past(page.messages[-1])):
                break
            place = page.cursor
    return Walk(read, None)


def _matching(page: port.Page, wanted: DeadFilter) -> Sequence[int]:
    return [n for n, message in enumerate(page.messages) if wanted.matches(message)]


def _page(tenant: str, queue: str, after: tuple[Any, ...] | None, limit: int) -> Steps[port.Page]:
    page: port.Page | None = yield Read(lambda engine: engine.page(tenant, queue, State.DEAD, after, limit))
    return port.Page([], None) if page is None else page


def _queues(engine: port.Engine, tenant: str, wanted: DeadFilter) -> list[str]:
    """The queues with dead letters, by name: counts that each commit updates."""
    rows = engine.stats(tenant, one_queue(wanted))
    return sorted(row.queue for row in rows if row.counts.get(State.DEAD) and wanted.takes_queue(row.queue))


def _size(message: Message) -> int:
    """About the bytes that the message has in memory."""
    return 500 + len(message.body.payload) + len(message.last_error or "")
