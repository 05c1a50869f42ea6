"""The demo's live view: counts by queue and state, throughput, and the latest journal entries."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Self

import tampu
from tampu.cli.commands.inspect import journal
from tampu.cli.commands.inspect import messages as commands_inspect
from tampu.cli.output import Output, text

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

_RECENT = 10
_WINDOW = 2.0
_PRINT_SECONDS = 1.0


class View:
    """A live view in a terminal, a line per second elsewhere, nothing with --json."""

    def __init__(self, out: Output, store: tampu.Store) -> None:
        self._out = out
        self._store = store
        self._position = store.journal(limit=1).latest
        self._recent: deque[tampu.Transition] = deque(maxlen=_RECENT)
        self._done: deque[tuple[float, int]] = deque()
        self._began = self._printed = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if not self._out.json and self._out.console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._out.console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def refresh(self, published: int, done: int, failed: int) -> None:
        now = time.monotonic()
        self._done.append((now, done))
        while now - self._done[0][0] > _WINDOW:
            self._done.popleft()
        if self._live is not None:
            self._live.update(self._render(now, published, done, failed), refresh=True)
        elif not self._out.json and now - self._printed >= _PRINT_SECONDS:
            self._printed = now
            self._out.line(f"{now - self._began:4.0f}s  {published} published, {done} done, {failed} failed attempts")

    def _render(self, now: float, published: int, done: int, failed: int) -> Group:
        from rich.console import Group

        page = self._store.journal(after=self._position, limit=1000)
        self._position = page.position
        self._recent.extend(page.transitions)
        then, before = self._done[0]
        rate = (done - before) / (now - then) if now > then else 0.0
        head = text(f"{now - self._began:4.1f}s  ", "dim") + text(f"{rate:5.0f} done/s", "bold green")
        head += text(f"   {published} published, {done} done, {failed} failed attempts")
        lines = [journal.line(t) for t in self._recent]
        lines += [text("")] * (_RECENT - len(lines))
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        return Group(head, commands_inspect.stats_table(self._store.stats()), *lines)
