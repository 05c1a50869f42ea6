"""Reading the journal as it grows: followers, waiting for results and the event feed all read on with a cursor."""

from __future__ import annotations

from tampu.engines.port import Engine
from tampu.model.journal import Position, Transition

PAGE = 10_000


def end_of_journal(engine: Engine) -> Position:
    """Where the journal ends now."""
    return engine.journal(None, 1, None).latest


class JournalCursor:
    """A position in the journal that moves on with each page, over all tenants."""

    def __init__(self, engine: Engine, position: Position | None = None, page: int = PAGE) -> None:
        """Begins after ``position``; without one, at the end of the journal."""
        self._engine = engine
        self._page = page
        self.position = end_of_journal(engine) if position is None else position
        self.more = False
        """There may be another page now: the last one was full."""

    def read(self) -> list[Transition]:
        """The next page, perhaps empty. The position is behind it then, also behind what retention has removed."""
        page = self._engine.journal(self.position or None, self._page, None)
        self.position = page.position
        self.more = len(page.transitions) >= self._page
        return page.transitions
