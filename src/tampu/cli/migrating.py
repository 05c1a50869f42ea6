"""`migrate`: bring the store's schema up to date, or print how."""

from __future__ import annotations

from typing import Annotated

import typer

import tampu
from tampu.cli.app import command
from tampu.cli.session import Session

Sql = Annotated[bool, typer.Option("--sql", help="Print the SQL that is missing, and change nothing")]


@command("migrate", "Care")
def migrate(session: Session, sql: Sql = False) -> None:
    """Bring the store's schema up to date. Opening a store does it too, where the role may change tables."""
    if session.store.startswith(("postgresql://", "postgres://")):
        _postgres(session, sql=sql)
        return
    if sql:
        raise tampu.InvalidConfig(
            "only a database server's schema is changed by SQL", field="url", hint="name a postgresql:// url"
        )
    with session.make() as q:
        (version,) = [detail for what, _, detail in q.check() if what == "schema"]
    _tell(session, version)


def _postgres(session: Session, *, sql: bool) -> None:
    import psycopg

    from tampu.engines.postgres import connecting, migrating

    place = connecting.target(session.store, None)
    try:
        with psycopg.connect(place.conninfo, autocommit=True) as connection:
            has = migrating.version_of(connection, place.schema)
            if not sql:
                version = migrating.migrate(connection, place.schema)
                _tell(session, f"{place.schema}: version {version}" + (f", was {has}" if has != version else ""))
                return
            missing = migrating.script(place.schema, has)
    except psycopg.Error as error:
        raise connecting.translate(error, place) from error
    if session.json:
        session.out.document({"schema": place.schema, "version": has, "statements": missing})
    elif missing:
        typer.echo("\n".join(["BEGIN;", *(f"{statement};" for statement in missing), "COMMIT;"]))


def _tell(session: Session, version: str) -> None:
    if session.json:
        session.out.document({"schema": version})
    else:
        session.out.say(version)
