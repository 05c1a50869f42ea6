"""`migrate`: updates the schema of the store, or prints the SQL for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

import tampu
from tampu.cli.app import command, option
from tampu.cli.session import Session

Sql = Annotated[bool, option("--sql", "Print the SQL instead of running it")]


@command("migrate", "Maintain")
def migrate(session: Session, sql: Sql = False) -> None:
    """Update the schema of the store. Opening a store does this too, if the database role may change tables."""
    if session.store.startswith(("postgresql://", "postgres://")):
        _postgres(session, sql=sql)
        return
    if session.store.startswith("mariadb://"):
        _mariadb(session, sql=sql)
        return
    if sql:
        raise tampu.InvalidConfig(
            "--sql works only for PostgreSQL and MariaDB",
            field="url",
            hint="use a postgresql:// or mariadb:// url, or leave out --sql",
        )
    with session.open_or_create() as store:
        (version,) = [detail for what, _, detail in store.check() if what == "schema"]
    _print_version(session, version)


def _postgres(session: Session, *, sql: bool) -> None:
    import psycopg

    from tampu.engines.postgres import connect, migrations

    target = connect.target(session.store, None)
    try:
        with psycopg.connect(target.conninfo, autocommit=True) as connection:
            has = migrations.version_of(connection, target.schema)
            if not sql:
                _print_migrated(session, target.schema, has, migrations.migrate(connection, target.schema))
                return
            missing = migrations.script(target.schema, has)
    except psycopg.Error as error:
        raise connect.translate(error, target) from error
    _print(session, target.schema, has, missing, begin=["BEGIN;"], end=["COMMIT;"])


def _mariadb(session: Session, *, sql: bool) -> None:
    import pymysql

    from tampu.engines.mariadb import connect, migrations

    target = connect.target(session.store, None)
    driver = connect.MariaDriver(target)
    try:
        db = driver.connect()
        try:
            has = migrations.version_of(db.connection, target.database)
            if not sql:
                _print_migrated(session, target.database, has, migrations.migrate(db.connection, target.database))
                return
            missing = migrations.script(target.database, has)
        finally:
            db.close()
    except pymysql.Error as error:
        raise driver.translate(error) from error
    _print(session, target.database, has, missing)  # MariaDB cannot roll back schema changes


def _print_migrated(session: Session, schema: str, was: int, version: int) -> None:
    _print_version(session, f"{schema}: version {version}" + (f", was {was}" if was != version else ""))


def _print(
    session: Session, schema: str, version: int, missing: list[str], begin: Sequence[str] = (), end: Sequence[str] = ()
) -> None:
    if session.json:
        session.out.document({"schema": schema, "version": version, "statements": missing})
    elif missing:
        typer.echo("\n".join([*begin, *(f"{statement};" for statement in missing), *end]))


def _print_version(session: Session, version: str) -> None:
    session.out.answer({"schema": version}, version)
