"""The checks of `tampu doctor` on a PostgreSQL database."""

from __future__ import annotations

from typing import Any

import psycopg

from tampu.engines.postgres import migrations
from tampu.engines.postgres.connect import turned_off
from tampu.engines.postgres.database import Db, in_schema
from tampu.engines.sql.base import Finding, index_finding, schema_finding

_LONG_SECONDS = 300
_INDEXES = ("ready", "delayed", "leased", "held", None, "dead")


def check(db: Db, schema: str, durability: str) -> list[Finding]:
    connection = db.connection
    version = connection.info.server_version
    newest, _ = migrations.migrations()[-1]
    return [
        ("server", "ok", f"PostgreSQL {version // 10_000}.{version % 10_000}"),
        schema_finding(f"{schema}: ", migrations.version_of(connection, schema), newest),
        _durability(connection, durability),
        _role(connection, schema),
        _vacuum(connection),
        _open_transactions(connection),
        _pooler(connection),
        _indexes(connection, schema),
    ]


def _value(connection: psycopg.Connection[Any], sql: str, *parameters: Any) -> Any:
    row = connection.execute(sql, parameters or None).fetchone()
    return None if row is None else row[0]


def _durability(connection: psycopg.Connection[Any], durability: str) -> Finding:
    off = turned_off(connection)
    if off:
        return ("durability", "warn", f"none: the server has {off} off, a crash of its machine may damage the data")
    if durability == "full":
        return ("durability", "ok", "full: acknowledged messages survive loss of power")
    return ("durability", "warn", "process: the last moments before a crash of the server may be lost")


def _role(connection: psycopg.Connection[Any], schema: str) -> Finding:
    role = _value(connection, "SELECT current_user")
    owner = _value(
        connection,
        "SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = to_regclass(%s)",
        f'"{schema}".ready',
    )
    if owner:
        return ("role", "ok", f"{role} owns the tables and can vacuum them")
    return ("role", "warn", f"{role} does not own the tables and cannot vacuum them: check that autovacuum keeps up")


def _vacuum(connection: psycopg.Connection[Any]) -> Finding:
    if _value(connection, "SHOW autovacuum") == "on":
        return ("autovacuum", "ok", "on")
    return ("autovacuum", "bad", "off: the tables of queues grow without bound; turn it on")


def _open_transactions(connection: psycopg.Connection[Any]) -> Finding:
    """While a transaction is open, deleted rows are not removed and claims must step over them."""
    age = _value(
        connection,
        "SELECT extract(epoch FROM max(now() - xact_start))::int8 FROM pg_stat_activity"
        " WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()",
    )
    if age is None or age < _LONG_SECONDS:
        return ("transactions", "ok", "none has been open for long")
    return ("transactions", "warn", f"one has been open for {age} s and blocks vacuum; end it")


def _pooler(connection: psycopg.Connection[Any]) -> Finding:
    if _value(connection, "SELECT pg_backend_pid()") == connection.info.backend_pid:
        return ("connection", "ok", "direct")
    return ("connection", "warn", "through a pooler: no prepared statements; wake-ups of other processes take 0.25 s")


def _indexes(connection: psycopg.Connection[Any], schema: str) -> Finding:
    """One statement: it reads one snapshot."""
    parts = [
        f"SELECT {kind} AS kind, q, count(*) AS n FROM tampu.{table} GROUP BY q"  # noqa: S608 - constants
        for kind, table in enumerate(_INDEXES)
        if table is not None
    ]
    parts.append("SELECT state, q, count(*) FROM tampu.ended GROUP BY state, q")
    sql = f"""
    WITH rows AS ({" UNION ALL ".join(parts)}),
    kept AS (SELECT kind, q, sum(n) AS n FROM tampu.tally GROUP BY kind, q HAVING sum(n) <> 0)
    SELECT (SELECT count(*) FROM tampu.message), (SELECT coalesce(sum(n), 0) FROM rows),
      (SELECT count(*) FROM rows FULL JOIN kept USING (kind, q) WHERE rows.n IS DISTINCT FROM kept.n)
    """  # noqa: S608 - constants
    messages, places, wrong = connection.execute(in_schema(sql, schema)).fetchone() or (0, 0, 0)
    return index_finding(messages, places, wrong)
