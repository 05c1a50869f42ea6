"""Schema versions. Migrations are the files in `schema/`; nothing else changes tables.

Opening a store creates the tables if they are missing and the user may create them, migrates older ones (one process at
a time), and refuses tables of a newer program. MariaDB commits after every change of a table. So each statement of a
migration can be repeated, the version is written last, and an unfinished migration is simply run again. Code of the
previous version must be able to run on the new tables: add, do not rename. What cannot be done so takes two releases.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from importlib import resources
from typing import Any

import pymysql

from tampu.engines.encoding import TAIL_BITS, Ids
from tampu.engines.mariadb.templates import in_database, simple
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.model.errors import SchemaMismatch, Unavailable

Migration = tuple[int, str]
_LOCK_SECONDS = 60
_SECRET_IDS = 5
"""The version that has a secret for ids."""


def migrations() -> list[Migration]:
    """(version, SQL) of every schema step, in order."""
    folder = resources.files("tampu.engines.mariadb") / "schema"
    steps = [(int(step.name[:4]), step.read_text()) for step in folder.iterdir() if step.name.endswith(".sql")]
    return sorted(steps)


def _value(connection: pymysql.Connection[Any], sql: str, *values: Any) -> Any:
    with connection.cursor(pymysql.cursors.Cursor) as cursor:
        cursor.execute(sql, values or None)
        row = cursor.fetchone()
    return None if row is None else row[0]


def _meta(connection: pymysql.Connection[Any], database: str, name: str) -> str | None:
    there = _value(
        connection,
        "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = 'tampu_meta'",
        database,
    )
    if there is None:
        return None
    value = _value(connection, f"SELECT value FROM `{database}`.tampu_meta WHERE name = %s", name)  # noqa: S608 - a checked name
    return None if value is None else str(value)


def version_of(connection: pymysql.Connection[Any], database: str) -> int:
    """The version of the tables; 0 if there are none. Raises SchemaMismatch if this program is too old for them."""
    version = int(_meta(connection, database, "schema") or 0)
    newest = migrations()[-1][0]
    least = int(_meta(connection, database, "least") or 1)  # the oldest code version that may use the tables
    if version > newest and least > newest:
        raise SchemaMismatch(
            f"the tables in {database} have version {version}; this tampu knows up to {newest}", hint="upgrade tampu"
        )
    return version


def script(database: str, since: int = 0, steps: Sequence[Migration] | None = None) -> list[str]:
    """The statements that migrate the tables from version ``since``, for people to read or run."""
    found: list[str] = []
    for number, text in migrations() if steps is None else steps:
        if number > since:
            found.extend(in_database(part, database) for part in simple(text))
            if number == 1:
                tail = secrets.randbits(TAIL_BITS)
                found.append(f"INSERT IGNORE INTO `{database}`.tampu_meta VALUES ('tail', '{tail}')")  # noqa: S608 - checked
            if number == _SECRET_IDS:
                secret = secrets.token_hex(16)
                found.append(f"INSERT IGNORE INTO `{database}`.tampu_meta VALUES ('secret', '{secret}')")  # noqa: S608 - checked
            found.append(
                f"INSERT INTO `{database}`.tampu_meta VALUES ('schema', '{number}')"  # noqa: S608 - checked
                " ON DUPLICATE KEY UPDATE value = VALUES(value)"
            )
    return found


def migrate(connection: pymysql.Connection[Any], database: str, steps: Sequence[Migration] | None = None) -> int:
    """Migrate the tables, one process at a time; returns their version."""
    newest = (migrations() if steps is None else steps)[-1][0]
    version = version_of(connection, database)
    if version >= newest:
        return version
    lock = f"tampu/{database}"[:64]
    if _value(connection, "SELECT GET_LOCK(%s, %s)", lock, _LOCK_SECONDS) != 1:
        raise Unavailable(f"another process is migrating the tables in {database}", hint="try again later")
    try:
        version = version_of(connection, database)  # another process may have migrated meanwhile
        for statement in script(database, version, steps):
            with connection.cursor() as cursor:
                cursor.execute(statement)
    finally:
        if connection.open:
            _value(connection, "SELECT RELEASE_LOCK(%s)", lock)
    return max(version, newest)


def registry(connection: pymysql.Connection[Any], database: str) -> QueueRegistry:
    """Make the queue registry from the tail of the ids and the time of the newest one."""
    tail = _meta(connection, database, "tail")
    if tail is None:
        raise SchemaMismatch(f"there are no tampu tables in {database}", hint="run tampu migrate")
    newest = _value(
        connection,
        f"SELECT created DIV 1000 + COALESCE(ahead, 0) FROM `{database}`.tampu_message ORDER BY seq DESC LIMIT 1",  # noqa: S608 - a checked name
    )
    secret, since = _meta(connection, database, "secret") or "", _meta(connection, database, "since") or 0
    return QueueRegistry(Ids(int(tail), bytes.fromhex(secret), int(since)), int(newest or 0))
