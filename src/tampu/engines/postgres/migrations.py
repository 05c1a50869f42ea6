"""Schema versions. Migrations are the files in `schema/`; nothing else changes tables.

Opening a store creates the schema if it is missing and the role may create it, migrates an older one (one process at a
time, in one transaction), and refuses one that is newer than this program. Code of the previous version must be able to
run on the new schema: add, do not rename. What cannot be done so takes two releases.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from importlib import resources
from typing import Any

import psycopg

from tampu.engines.encoding import TAIL_BITS, Ids
from tampu.engines.postgres.database import in_schema
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.model.errors import SchemaMismatch

Migration = tuple[int, str]
_LOCK = 0x74616D7075  # "tampu"


def migrations() -> list[Migration]:
    """(version, SQL) of every schema step, in order."""
    folder = resources.files("tampu.engines.postgres") / "schema"
    steps = [(int(step.name[:4]), step.read_text()) for step in folder.iterdir() if step.name.endswith(".sql")]
    return sorted(steps)


def version_of(connection: psycopg.Connection[Any], schema: str) -> int:
    """The version of a schema; 0 if it does not exist. Raises SchemaMismatch if this program is too old for it."""
    # Not to_regclass: inside a transaction, a session may go on not finding what it once did not find.
    there = connection.execute(
        "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = 'meta'",
        (schema,),
    )
    if there.fetchone() is None:
        return 0
    row = connection.execute(f"SELECT value FROM \"{schema}\".meta WHERE name = 'schema'").fetchone()  # noqa: S608 - a checked name
    version = int(row[0]) if row else 0
    newest = migrations()[-1][0]
    if version > newest and _least(connection, schema) > newest:
        raise SchemaMismatch(
            f"the schema {schema} has version {version}; this tampu knows up to {newest}", hint="upgrade tampu"
        )
    return version


def _least(connection: psycopg.Connection[Any], schema: str) -> int:
    """The oldest code version that may use the schema."""
    row = connection.execute(f"SELECT value FROM \"{schema}\".meta WHERE name = 'least'").fetchone()  # noqa: S608 - a checked name
    return int(row[0]) if row else 1


def script(schema: str, since: int = 0, steps: Sequence[Migration] | None = None) -> list[str]:
    """The statements that migrate a schema from version ``since``, for people to read or run."""
    found = []
    for number, text in migrations() if steps is None else steps:
        if number > since:
            if number == 1:
                found.append(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            found.extend(_statements(in_schema(text, schema)))
            if number == 1:
                tail = secrets.randbits(TAIL_BITS)
                found.append(f"INSERT INTO \"{schema}\".meta VALUES ('tail', '{tail}')")  # noqa: S608 - checked
            found.append(
                f"INSERT INTO \"{schema}\".meta VALUES ('schema', '{number}')"  # noqa: S608 - checked
                " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
            )
    return found


def _statements(text: str) -> list[str]:
    return [part.strip() for part in text.split(";\n") if part.strip()]


def migrate(connection: psycopg.Connection[Any], schema: str, steps: Sequence[Migration] | None = None) -> int:
    """Migrate the schema in one transaction, one process at a time; returns its version."""
    newest = (migrations() if steps is None else steps)[-1][0]
    if version_of(connection, schema) >= newest:
        return version_of(connection, schema)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        version = version_of(connection, schema)  # another process may have migrated meanwhile
        for statement in script(schema, version, steps):
            # If an admin has created the schema, the role needs no right to create one.
            if statement.startswith("CREATE SCHEMA") and _exists(connection, schema):
                continue
            connection.execute(statement)
    return max(version, newest)


def _exists(connection: psycopg.Connection[Any], schema: str) -> bool:
    return connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone() is not None


def registry(connection: psycopg.Connection[Any], schema: str) -> QueueRegistry:
    """Make the queue registry from the schema's tail and the time of its newest id."""
    meta: dict[str, str] = dict(connection.execute(f'SELECT name, value FROM "{schema}".meta').fetchall())  # noqa: S608 - a checked name
    newest = connection.execute(
        f'SELECT created / 1000 + coalesce(ahead, 0) FROM "{schema}".message ORDER BY seq DESC LIMIT 1'  # noqa: S608 - a checked name
    ).fetchone()
    if "tail" not in meta:
        raise SchemaMismatch(f"the schema {schema} is not tampu's", hint="choose another with ?schema=")
    ids = Ids(int(meta["tail"]), bytes.fromhex(meta["secret"]), int(meta["since"]))
    return QueueRegistry(ids, int(newest[0]) if newest else 0)
