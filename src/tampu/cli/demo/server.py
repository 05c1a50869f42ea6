"""The demo's server, with the dashboard."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec

import tampu
from tampu.cli.session import Session

_NEEDED = ("aiohttp", "fastapi", "jinja2", "prometheus_client", "structlog", "urllib3", "uvicorn")
_PRIVATE = Path(".tampu-demo")
"""The folder of the demo's admin key: only its owner can read it, and git ignores it."""


def possible() -> bool:
    return all(find_spec(name) is not None for name in _NEEDED)


def watched(session: Session) -> bool:
    """True if a person watches and can end it; otherwise it has to end by itself."""
    return session.out.console.is_terminal and sys.stdin.isatty() and not session.json and not os.environ.get("CI")


class Served:
    """The demo's store, served by this process."""

    def __init__(self, url: str, token: str, link: Callable[[], str | None]) -> None:
        self.url = url
        self.link = link
        self._token = token

    def open(self, session: Session) -> tampu.Store:
        """Open the store over HTTP, as any client does."""
        return tampu.open(self.url, token=self._token, tenant=session.tenant or "default")


@contextlib.contextmanager
def server(session: Session) -> Iterator[Served]:
    from tampu.server import logs, settings
    from tampu.server.auth import first_key
    from tampu.server.run import Running

    config = settings.load(url=session.store, host="127.0.0.1", auth=True, log_level="error")
    if config.key_file is None:
        config = msgspec.structs.replace(config, key_file=str(_private(first_key.path_of(config).name)))
    logs.set_up(config)
    try:
        running = Running(config)
    except tampu.InvalidConfig as error:
        if error.field != "port":
            raise
        running = Running(msgspec.structs.replace(config, port=0))  # the port is in use: take any free one
    thread = threading.Thread(target=running.run, name="tampu-server", daemon=True)
    thread.start()
    try:
        while not running.started.wait(0.1):
            if not thread.is_alive():
                raise tampu.Unavailable("the demo's server did not start", hint="run the demo with --no-serve")
        if running.key_id is None:
            raise tampu.InvalidConfig(
                f"the admin key of {session.shown} is not in {first_key.path_of(config)}",
                hint="run the demo with --no-serve, or delete the demo's store to start anew",
            )
        yield Served(
            running.url, first_key.path_of(config).read_text().strip(), lambda: running.about(sign_in=True).sign_in
        )
    finally:
        running.stop()
        thread.join()


def _private(name: str) -> Path:
    """A path in the demo's own folder, so that ``git add .`` does not add the key."""
    _PRIVATE.mkdir(mode=0o700, exist_ok=True)
    (_PRIVATE / ".gitignore").write_text("*\n")
    return _PRIVATE / name


def stay(session: Session, served: Served) -> None:
    """Keep the server until Ctrl-C."""
    session.out.line(f"\nThe server and the workers keep running. Watch them: {served.link() or served.url}", "bold")
    session.out.line("Stop with Ctrl-C.")
    never = threading.Event()
    with contextlib.suppress(KeyboardInterrupt):
        never.wait()
    session.out.line("\nThe server has stopped. The store stays.")
