"""Where people are in the journal: its last part, the pages after a position, and how far that is behind."""

from __future__ import annotations

from collections.abc import Iterator

import tampu
from tampu.model.journal import Position
from tampu.wire.positions import read, write

__all__ = ["behind", "last", "pages", "read", "write"]
_ALL = 10_000


def last(q: tampu.Queue, limit: int) -> tampu.JournalPage:
    """The last transitions. Other tenants' are passed over, so it may have to start further back."""
    latest = q.journal(limit=1).latest
    back = limit
    while True:
        after = {partition: max(0, end - back) for partition, end in latest.items()}
        found: list[tampu.Transition] = []
        for page in pages(q, after, _ALL):
            found = (found + page.transitions)[-limit:]
        if len(found) >= limit or not any(after.values()):
            return tampu.JournalPage(found, page.position, page.latest)
        back *= 4


def pages(q: tampu.Queue, after: Position, size: int) -> Iterator[tampu.JournalPage]:
    """To the end as it is now. A page may be empty when there is only other tenants' work in it; the last one is."""
    while True:
        page = q.journal(after=after, limit=size)
        yield page
        if not page.transitions and page.position == after:
            return
        after = page.position


def behind(page: tampu.JournalPage) -> int:
    """How many transitions come after a page."""
    return sum(max(0, end - page.position.get(partition, 0)) for partition, end in page.latest.items())
