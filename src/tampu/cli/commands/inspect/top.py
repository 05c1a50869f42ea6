"""`tampu top`: queues, rates, workers and failures, refreshed in the terminal."""

from __future__ import annotations

import contextlib
import threading
from typing import Annotated

import tampu
from tampu.cli import parse
from tampu.cli.app import command, option
from tampu.cli.output import exit_if_unread
from tampu.cli.session import Session
from tampu.cli.top import view
from tampu.cli.top.overview import Overview, Picture

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
    with session.open() as store, contextlib.ExitStack() as screen:
        overview, pause = Overview(store), threading.Event()
        picture = overview.take()
        if session.json or most == 1:
            _print(session, overview, picture, seconds, most)
            return
        from rich.live import Live

        live = screen.enter_context(Live(console=session.out.console, auto_refresh=False, screen=on_terminal))
        problem: str | None = None
        done = 0
        while True:
            live.update(view.draw(picture, session.shown, problem), refresh=True)
            done += 1
            if done == most:
                return
            pause.wait(seconds)
            try:
                picture, problem = overview.take(), None
            except tampu.StorageError as error:
                problem = f"the store does not answer: {error.message}"


def _print(session: Session, overview: Overview, picture: Picture, seconds: float, most: int | None) -> None:
    done = 0
    pause = threading.Event()
    while True:
        if session.json:
            session.out.document(picture.document())
        else:
            session.out.show(view.draw(picture, session.shown))
        done += 1
        if done == most:
            return
        pause.wait(seconds)
        exit_if_unread()
        picture = overview.take()
