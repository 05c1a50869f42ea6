"""Reading the journal by position: its last entries, the pages after a position, and how many come later."""

from __future__ import annotations

from collections.abc import Iterator

import tampu
from tampu.model.journal import Position
from tampu.wire.positions import read, write

__all__ = ["behind", "last", "page_after", "pages", "read", "write"]
_ALL = 10_000
_STEP = 1_000


def last(store: tampu.Store, limit: int, queue: str | None = None) -> tampu.JournalPage:
    """The last transitions, of one queue if given.

    Transitions of other tenants and queues are skipped, so it may have to start further back. If each queue has its own
    partition, only that one is read.
    """
    latest = store.journal(limit=1).latest
    own = f"{store.tenant}/{queue}"
    chosen = {own: latest[own]} if queue is not None and own in latest else latest
    back = limit
    while True:
        after = latest | {partition: max(0, end - back) for partition, end in chosen.items()}
        found: list[tampu.Transition] = []
        for page in pages(store, after, _ALL):
            found = (found + [t for t in page.transitions if queue in (None, t.queue)])[-limit:]
        if len(found) >= limit or all(end <= back for end in chosen.values()):
            return tampu.JournalPage(found, page.position, page.latest)
        back *= 4


def page_after(store: tampu.Store, after: Position, limit: int, queue: str | None = None) -> tampu.JournalPage:
    """The next ``limit`` transitions after a position, of one queue if given; fewer only at the end.

    The position of the page is right after the last of them.
    """
    found: list[tampu.Transition] = []
    position = dict(after)
    for page in pages(store, after, limit if queue is None else max(limit, _STEP)):
        for t in page.transitions:
            position[t.partition] = t.offset
            if queue in (None, t.queue):
                found.append(t)
                if len(found) == limit:
                    ended = t is page.transitions[-1]
                    return tampu.JournalPage(found, page.position if ended else position, page.latest)
        position = dict(page.position)
    return tampu.JournalPage(found, page.position, page.latest)


def pages(store: tampu.Store, after: Position, size: int) -> Iterator[tampu.JournalPage]:
    """Pages up to the current end. The last page is empty; so is a page with only transitions of other tenants."""
    while True:
        page = store.journal(after=after, limit=size)
        yield page
        if not page.transitions and page.position == after:
            return
        after = page.position


def behind(page: tampu.JournalPage) -> int:
    """The number of transitions after a page."""
    return sum(max(0, end - page.position.get(partition, 0)) for partition, end in page.latest.items())
