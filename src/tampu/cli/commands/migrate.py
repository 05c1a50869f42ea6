"""`migrate`: bring the store's schema up to date, or print how."""

from __future__ import annotations

from collections.abc import Sequence
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
    if session.store.startswith("mariadb://"):
        _mariadb(session, sql=sql)
        return
    if sql:
        raise tampu.InvalidConfig(
            "only a database server's schema is changed by SQL",
            field="url",
            hint="name a postgresql:// or mariadb:// url",
        )
    with session.make() as store:
        (version,) = [detail for what, _, detail in store.check() if what == "schema"]
    _tell(session, version)


def _postgres(session: Session, *, sql: bool) -> None:
    import psycopg

    from tampu.engines.postgres import connect, migrations

    place = connect.target(session.store, None)
    try:
        with psycopg.connect(place.conninfo, autocommit=True) as connection:
            has = migrations.version_of(connection, place.schema)
            if not sql:
                _tell_migrated(session, place.schema, has, migrations.migrate(connection, place.schema))
                return
            missing = migrations.script(place.schema, has)
    except psycopg.Error as error:
        raise connect.translate(error, place) from error
    _print(session, place.schema, has, missing, begin=["BEGIN;"], end=["COMMIT;"])


def _mariadb(session: Session, *, sql: bool) -> None:
    import pymysql

    from tampu.engines.mariadb import connect, migrations

    place = connect.target(session.store, None)
    driver = connect.MariaDriver(place)
    try:
        db = driver.connect()
        try:
            has = migrations.version_of(db.connection, place.database)
            if not sql:
                _tell_migrated(session, place.database, has, migrations.migrate(db.connection, place.database))
                return
            missing = migrations.script(place.database, has)
        finally:
            db.close()
    except pymysql.Error as error:
        raise driver.translate(error) from error
    _print(session, place.database, has, missing)  # nothing here could be taken back by a rollback


def _tell_migrated(session: Session, schema: str, was: int, version: int) -> None:
    _tell(session, f"{schema}: version {version}" + (f", was {was}" if was != version else ""))


def _print(
    session: Session, schema: str, version: int, missing: list[str], begin: Sequence[str] = (), end: Sequence[str] = ()
) -> None:
    if session.json:
        session.out.document({"schema": schema, "version": version, "statements": missing})
    elif missing:
        typer.echo("\n".join([*begin, *(f"{statement};" for statement in missing), *end]))


def _tell(session: Session, version: str) -> None:
    if session.json:
        session.out.document({"schema": version})
    else:
        session.out.say(version)
