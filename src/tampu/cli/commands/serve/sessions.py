"""`tampu signin` and `tampu signout`: links and sessions of the dashboard, directly in the store."""

from __future__ import annotations

from typing import Annotated

import typer

import tampu
from tampu.broker import access
from tampu.broker.core import Core
from tampu.cli.app import command, option
from tampu.cli.session import Session

_PANEL = "Serve"


@command("signin", _PANEL)
def signin(
    session: Session,
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="Id or prefix of a key; default: the first")] = None,
    at: Annotated[str | None, option("--at", "Where browsers find the server", metavar="URL")] = None,
) -> None:
    """Print a link that signs a browser in: once, within 15 minutes."""
    from tampu.server import settings
    from tampu.server.auth import sessions

    if at is None:
        config = settings.load()
        at = f"http://{'localhost' if config.loopback else config.host}:{config.port}"
    with session.open() as store:
        core = _core(store)
        link = f"{at.rstrip('/')}/signin?token={sessions.make_link(core, _key_id(core, key))}"
    session.out.answer({"link": link}, link)


@command("signout", _PANEL)
def signout(session: Session) -> None:
    """End all sessions of the dashboard, on all servers. Keys stay valid."""
    from tampu.server.auth import sessions

    with session.open() as store:
        ended = sessions.end_all(_core(store))
    session.out.answer({"ended": ended}, f"{ended} {'session' if ended == 1 else 'sessions'} ended")


def _core(store: tampu.Store) -> Core:
    if not access.is_local(store):
        raise tampu.InvalidConfig("this url is a server's", field="url", hint="use the url of its store")
    return access.core(store)


def _key_id(core: Core, key: str | None) -> str:
    from tampu.server.auth import first_key, keys

    id = first_key.marked(core) if key is None else key.removeprefix("tampu_")
    if id is None or core.engine.document(keys.KIND, keys.TENANT, id) is None:
        raise tampu.NotFound("there is no such key", field="key", hint="name one of tampu keys list")
    return id
