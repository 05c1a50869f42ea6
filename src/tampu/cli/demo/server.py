"""The demo's server: a page on which a person sees the work as it happens, for as long as they like."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import tampu
from tampu.cli.session import Session

_NEEDED = ("aiohttp", "fastapi", "jinja2", "prometheus_client", "pydantic_settings", "structlog", "urllib3", "uvicorn")
_TRICKLE_SECONDS = 1.0
_PRIVATE = Path(".tampu-demo")
"""Where the demo keeps its admin key: a folder that only its owner can look into, and that git passes over."""


def possible() -> bool:
    return all(find_spec(name) is not None for name in _NEEDED)


def watched(session: Session) -> bool:
    """Does a person look on, who can end it? Else it has to end by itself."""
    return session.out.console.is_terminal and sys.stdin.isatty() and not session.json and not os.environ.get("CI")


class Served:
    """The demo's store behind a server of this process."""

    def __init__(self, url: str, token: str, link: Callable[[], str | None]) -> None:
        self.url = url
        self.link = link
        self._token = token

    def open(self, session: Session) -> tampu.Store:
        """The queues as everybody else has them, over HTTP."""
        return tampu.open(self.url, token=self._token, tenant=session.tenant or "default")


@contextlib.contextmanager
def server(session: Session) -> Iterator[Served]:
    from tampu.server import logs, settings
    from tampu.server.auth import first_key
    from tampu.server.run import Running

    held = settings.load(url=session.store, host="127.0.0.1", auth=True, log_level="error")
    if held.key_file is None:
        held = held.model_copy(update={"key_file": _private(first_key.path_of(held).name)})
    logs.set_up(held)
    try:
        running = Running(held)
    except tampu.InvalidConfig as error:
        if error.field != "port":
            raise
        running = Running(held.model_copy(update={"port": 0}))  # another server has its place: any other will do
    thread = threading.Thread(target=running.run, name="tampu-server", daemon=True)
    thread.start()
    try:
        while not running.started.wait(0.1):
            if not thread.is_alive():
                raise tampu.Unavailable("the demo's server did not start", hint="without it: --no-serve")
        if running.key_id is None:
            raise tampu.InvalidConfig(
                f"the admin key of {session.shown} is not in {first_key.path_of(held)}",
                hint="without a server: --no-serve; or remove the demo's store to begin anew",
            )
        yield Served(running.url, first_key.path_of(held).read_text().strip(), lambda: running.about().sign_in)
    finally:
        running.stop()
        thread.join()


def _private(name: str) -> Path:
    """A path in a folder of the demo's own: ``git add .`` must not take the key."""
    _PRIVATE.mkdir(mode=0o700, exist_ok=True)
    (_PRIVATE / ".gitignore").write_text("*\n")
    return _PRIVATE / name


def stay(session: Session, served: Served, more: Callable[[], None]) -> None:
    """Go on with a little work, until Ctrl-C."""
    session.out.say(f"\nThe server goes on, and so does the work. See it: {served.link() or served.url}", "bold")
    session.out.say("Ctrl-C ends it.")
    never = threading.Event()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            more()
            never.wait(_TRICKLE_SECONDS)
    session.out.say("\nThe server has ended; what it served stays.")
