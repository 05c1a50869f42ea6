"""`tampu top`: queues, rates, workers and failures, refreshed in the terminal."""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import Annotated

import tampu
from tampu.cli import parse
from tampu.cli.app import command, option
from tampu.cli.output import exit_if_unread
from tampu.cli.session import Session
from tampu.cli.top import view
from tampu.cli.top.overview import Overview

_SHORTEST = 0.05


@command("top", "Inspect")
def top(
    session: Session,
    interval: Annotated[str, option("--interval", "Refresh this often", metavar="TIME")] = "2s",
    once: Annotated[bool, option("--once", "Show it once, and exit")] = False,
    times: Annotated[int | None, option("--times", "Stop after this many refreshes", min=1)] = None,
) -> None:
    """Show what happens now: queues with rates of the last minute, workers and what they run, failures.

    Until Ctrl-C in a terminal; elsewhere once. With --json, a document per refresh.
    """
    seconds = max(_SHORTEST, parse.duration(interval, "interval"))
    on_terminal = session.out.console.is_terminal
    most = 1 if once or not (session.json or on_terminal or times) else times
    with session.open() as store, contextlib.suppress(KeyboardInterrupt):
        overview = Overview(store)
        if session.json or most == 1:
            _print(session, overview, seconds, most)
        else:
            _draw(session, overview, seconds, most, on_terminal=on_terminal)


def _print(session: Session, overview: Overview, seconds: float, most: int | None) -> None:
    pause = threading.Event()
    for number in itertools.count(1):
        picture = overview.take()
        if session.json:
            session.out.document(picture.document())
        else:
            session.out.show(view.draw(picture, session.shown))
        if number == most:
            return
        pause.wait(seconds)
        exit_if_unread()


def _draw(session: Session, overview: Overview, seconds: float, most: int | None, *, on_terminal: bool) -> None:
    """Draw in place. If the store does not answer, the last picture stays, with the reason above."""
    from rich.live import Live

    picture, problem, pause = overview.take(), None, threading.Event()
    with Live(console=session.out.console, auto_refresh=False, screen=on_terminal) as live:
        for number in itertools.count(1):
            live.update(view.draw(picture, session.shown, problem), refresh=True)
            if number == most:
                return
            pause.wait(seconds)
            try:
                picture, problem = overview.take(), None
            except tampu.StorageError as error:
                problem = f"the store does not answer: {error.message}"
