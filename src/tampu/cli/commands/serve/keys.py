"""Keys and sessions of the server, directly in the store: `tampu keys`, `signin` and `signout`."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import tampu
from tampu.broker import access
from tampu.broker.core import Core
from tampu.cli.app import command, group, option
from tampu.cli.parse import duration, optional_duration
from tampu.cli.session import Session

_PANEL = "Serve"
keys = group("keys", _PANEL, "API keys of the server: create, list, rotate, revoke")

Id = Annotated[str, typer.Argument(metavar="KEY", help="Id or prefix of the key, as in tampu keys list")]


def _core(store: tampu.Store) -> Core:
    if not access.is_local(store):
        raise tampu.InvalidConfig(
            "this url is a server's", field="url", hint="use the url of its store, or POST /v1/keys on the server"
        )
    return access.core(store)


def _key_admin(session: Session, store: tampu.Store, tenant: str | None = None) -> Any:
    from tampu.server.auth.key_admin import KeyAdmin

    return KeyAdmin(_core(store), tenant or session.tenant or "*")


@command("create", _PANEL, of=keys)
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is for")],
    grant: Annotated[list[str], option("--grant", "For example publish,view:orders.* (repeatable)", metavar="GRANT")],
    all_tenants: Annotated[bool, option("--all-tenants", "Valid for all tenants")] = False,
    expires_in: Annotated[str | None, option("--expires-in", "Lifetime, such as 30d", metavar="TIME")] = None,
    rate: Annotated[float, option("--rate", "Maximum messages per second; 0: no limit")] = 0,
    burst: Annotated[int, option("--burst", "Maximum messages at once")] = 0,
) -> None:
    """Create a key and show it once."""
    from tampu.server.auth.grants import parse

    grants = [parse(text) for text in grant]
    with session.open_or_create() as store:
        tenant = "*" if all_tenants else session.tenant or "default"
        keys = _key_admin(session, store, tenant)
        lifetime = optional_duration(expires_in, "expires_in")
        made = access.run(store, keys.create(name, grants, expires_in=lifetime, rate=rate, burst=burst))
    _print(session, made)


@command("list", _PANEL, of=keys)
def list_keys(session: Session) -> None:
    """List the keys, without their secrets."""
    with session.open() as store:
        found = access.run(store, _key_admin(session, store).list())
    rows = (
        [
            key.prefix, key.tenant, key.name,
            "; ".join(f"{','.join(g.permissions)}:{','.join(g.queues)}" for g in key.grants),
            *("" if at is None else f"{at:%Y-%m-%d %H:%M}" for at in (key.expires_at, key.last_used_at)),
        ]
        for key in found
    )  # fmt: skip
    session.out.rows({"keys": found}, ["key", "tenant", "name", "grants", "expires", "last use"], rows, fold=["grants"])


@command("rotate", _PANEL, of=keys)
def rotate(
    session: Session,
    id: Id,
    overlap: Annotated[str, option("--overlap", "Keep the old secret valid for this long", metavar="TIME")] = "1d",
) -> None:
    """Give a key a new secret, and show it once."""
    with session.open() as store:
        made = access.run(store, _key_admin(session, store).rotate(id, overlap=duration(overlap, "overlap")))
    _print(session, made)


@command("revoke", _PANEL, of=keys)
def revoke(session: Session, id: Id) -> None:
    """Revoke a key. All servers refuse it within a second."""
    with session.open() as store:
        access.run(store, _key_admin(session, store).revoke(id))
    if not session.json:
        session.out.line("revoked")


@command("aws", _PANEL, of=keys)
def aws(
    session: Session,
    key_file: Annotated[
        Path | None, option("--key-file", "A file with the key; default: asked for, or read from standard input")
    ] = None,
) -> None:
    """The credentials of a key for AWS SDKs, which work with `tampu serve --sqs`."""
    from tampu.server.auth import keys

    if key_file is not None:
        token = key_file.read_text()
    else:
        token = getpass.getpass("Key: ") if sys.stdin.isatty() else sys.stdin.readline()
    parts = keys.split(token.strip())
    if parts is None:
        raise tampu.InvalidMessage("this is not a key", field="key", hint="give the whole key: tampu_…_…")
    found = {"AWS_ACCESS_KEY_ID": f"tampu_{parts[0]}", "AWS_SECRET_ACCESS_KEY": keys.aws_secret(parts[1])}
    session.out.answer(found, "\n".join(f"{name}={value}" for name, value in found.items()))
    session.out.note("They are as secret as the key, and end with it.")


def _print(session: Session, made: Any) -> None:
    session.out.answer(made, made.token)
    session.out.note("Store it now: it is not shown again.")


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


def _key_id(core: Core, key: str | None) -> str:
    from tampu.server.auth import first_key, keys

    id = first_key.marked(core) if key is None else key.removeprefix("tampu_")
    if id is None or core.engine.document(keys.KIND, keys.TENANT, id) is None:
        raise tampu.NotFound("there is no such key", field="key", hint="name one of tampu keys list")
    return id
