"""`tampu keys`: make, list, rotate and revoke the keys that a server asks for, on the store itself."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import tampu
from tampu.broker import access
from tampu.cli.app import app, command
from tampu.cli.session import Session

_PANEL = "Serve"
keys = typer.Typer(name="keys", help="Keys of the server: make, list, rotate, revoke", no_args_is_help=True)
app.add_typer(keys, rich_help_panel=_PANEL)

Id = Annotated[str, typer.Argument(metavar="KEY", help="The key's id or prefix, as tampu keys list shows it")]


def _ring(session: Session, store: tampu.Store, tenant: str | None = None) -> Any:
    from tampu.server.auth.key_admin import KeyAdmin

    if not access.is_local(store):
        raise tampu.InvalidConfig(
            "keys are made on the store itself", field="url", hint="name the store, or use POST /v1/keys on the server"
        )
    return KeyAdmin(access.core(store), tenant or session.tenant or "*")


@command("create", _PANEL, of=keys)
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for")],
    grant: Annotated[
        list[str], typer.Option("--grant", metavar="GRANT", help="For example publish,view:orders.* (may be repeated)")
    ],
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="May act in any tenant")] = False,
    expires_in: Annotated[float | None, typer.Option("--expires-in", metavar="SECONDS", help="Ends after")] = None,
    rate: Annotated[float, typer.Option("--rate", help="Messages a second it may move; 0: no limit")] = 0,
    burst: Annotated[int, typer.Option("--burst", help="Messages at once after a quiet time")] = 0,
) -> None:
    """Make a key and show it, once."""
    from tampu.server.auth.grants import parse

    grants = [parse(text) for text in grant]
    with session.make() as store:
        tenant = "*" if all_tenants else session.tenant or "default"
        made = access.run(
            store, _ring(session, store, tenant).create(name, grants, expires_in=expires_in, rate=rate, burst=burst)
        )
    _tell(session, made)


@command("list", _PANEL, of=keys)
def list_keys(session: Session) -> None:
    """The keys, without their secrets."""
    with session.open() as store:
        found = access.run(store, _ring(session, store).list())
    if session.json:
        session.out.document(found)
        return
    from rich.text import Text

    from tampu.cli.output import table

    rows = [
        [
            Text(text)
            for text in (
                key.prefix,
                key.tenant,
                key.name,
                "; ".join(f"{','.join(g.permissions)}:{','.join(g.queues)}" for g in key.grants),
                "" if key.expires_at is None else f"{key.expires_at:%Y-%m-%d %H:%M}",
                "" if key.last_used_at is None else f"{key.last_used_at:%Y-%m-%d %H:%M}",
            )
        ]
        for key in found
    ]
    session.out.show(table(["key", "tenant", "name", "grants", "expires", "last use"], rows, fold=["grants"]))


@command("rotate", _PANEL, of=keys)
def rotate(
    session: Session,
    id: Id,
    overlap: Annotated[
        float, typer.Option("--overlap", metavar="SECONDS", help="The old secret holds so long")
    ] = 86_400,
) -> None:
    """Give a key a new secret, and show it once."""
    with session.open() as store:
        made = access.run(store, _ring(session, store).rotate(id, overlap=overlap))
    _tell(session, made)


@command("revoke", _PANEL, of=keys)
def revoke(session: Session, id: Id) -> None:
    """The key no longer holds, on any server, within a second."""
    with session.open() as store:
        access.run(store, _ring(session, store).revoke(id))
    if not session.json:
        session.out.say("revoked")


def _tell(session: Session, made: Any) -> None:
    if session.json:
        session.out.document(made)
    else:
        session.out.say(made.token)
        session.out.note("This is the only time it is shown.")
