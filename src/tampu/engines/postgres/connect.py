"""Parses the url, connects, and translates PostgreSQL's errors.

A pooler (pgbouncer in transaction mode) gives each transaction another server session. It is detected by the process id
of the session, which differs from the one the connection was given. Then no statement is prepared, and no LISTEN sent.
"""

from __future__ import annotations

import urllib.parse
from typing import Any

import msgspec
import psycopg
from psycopg import errors

from tampu.engines.postgres.database import NAME, Db
from tampu.engines.postgres.skip_dead_rows import DeadRowSkip
from tampu.model.errors import Forbidden, InvalidConfig, StorageError, StorageFull, TampuError, Unavailable

OLDEST = 130_000
CONNECT_SECONDS = 10
LOST_SECONDS = 30
"""If sent data is not acknowledged for this long, the connection is lost (tcp_user_timeout)."""
REPLY_SECONDS = 60
"""A server that has not replied for this long is gone, even if a proxy acknowledges what we send. Longer than any wait
for a lock (`database.LOCK_SECONDS`) or any statement of a commit takes."""
POOLED_SECONDS = 180
"""The same behind a pooler, which may make us wait for a server session: pgbouncer up to two minutes."""
_OWN = ("schema", "durability")
_DURABILITIES = {"full": "on", "process": "off"}
"""synchronous_commit; the server's own setting may be stricter than ``on``, and stays."""


class PostgresDriver:
    """See `tampu.engines.sql.db.Driver`."""

    error: type[Exception] = psycopg.Error

    def __init__(self, place: Target) -> None:
        self.place = place
        self.shown = place.shown
        self._dead_rows = DeadRowSkip()

    def connect(self) -> Db:
        return connect(self.place, self._dead_rows, patience=REPLY_SECONDS)

    def gone(self, error: BaseException) -> bool:
        shut_down = errors.AdminShutdown | errors.CrashShutdown | errors.CannotConnectNow | errors.TooManyConnections
        if isinstance(error, shut_down):
            return True
        wrong = errors.InvalidPassword | errors.InvalidAuthorizationSpecification | errors.InvalidCatalogName
        return (
            isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
            and getattr(error, "sqlstate", None) is None
            and not isinstance(error, wrong)
        )

    def retriable(self, error: BaseException) -> bool:
        return isinstance(error, errors.DeadlockDetected | errors.SerializationFailure)

    def locked(self, error: BaseException) -> bool:
        return isinstance(error, errors.LockNotAvailable)

    def read_only(self, error: BaseException | None) -> bool:
        return isinstance(error, errors.ReadOnlySqlTransaction)

    def translate(self, error: psycopg.Error) -> TampuError:
        return translate(error, self.place)


class Target(msgspec.Struct, frozen=True):
    """Where to connect, and as what."""

    conninfo: str
    schema: str
    durability: str
    """The durability that our sessions set."""
    strict: bool
    """True if the user asked for ``full`` explicitly: then a server that gives less is refused."""
    shown: str
    """The url without its password."""


def target(url: str, durability: str | None) -> Target:
    """The parts of a ``postgresql://`` url; ``schema`` and ``durability`` are ours, other options are libpq's."""
    base, _, query = url.partition("?")
    options = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    own = {name: options.pop(name) for name in _OWN if name in options}
    schema = own.get("schema", "tampu")
    if not NAME.match(schema) or schema.startswith("pg_"):
        raise InvalidConfig(
            f"{schema!r:.60} is not a valid schema name", field="url", hint="a-z 0-9 _, at most 40, not pg_…"
        )
    asked = own.get("durability", durability)
    durability = asked or "full"
    if durability not in _DURABILITIES:
        raise InvalidConfig(
            f"no such durability: {durability}",
            field="durability",
            hint="full (survives a crash of the server) or process (the last moments before one may be lost)",
        )
    # libpq does not read + as a space, which separates settings in `options`.
    rest = f"{base}?{urllib.parse.urlencode(options, quote_via=urllib.parse.quote)}" if options else base
    try:
        parts: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(rest)
    except psycopg.ProgrammingError as error:
        raise InvalidConfig(f"the url is not valid: {error}".strip(), field="url") from None
    parts.setdefault("connect_timeout", CONNECT_SECONDS)
    parts.setdefault("application_name", "tampu")
    for name, value in (("keepalives_idle", 30), ("keepalives_interval", 10), ("keepalives_count", 3)):
        parts.setdefault(name, value)
    parts.setdefault("tcp_user_timeout", LOST_SECONDS * 1000)
    shown = f"{parts.get('host', '')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
    return Target(psycopg.conninfo.make_conninfo(**parts), schema, durability, asked == "full", shown)


def connect(place: Target, dead_rows: DeadRowSkip | None = None, *, patience: float | None = None) -> Db:
    """Connect in autocommit mode: we send BEGIN and COMMIT ourselves.

    ``patience``: seconds to wait for a reply of the server; None: for ever.
    """
    connection = psycopg.connect(place.conninfo, autocommit=True, prepare_threshold=None)
    try:
        version = connection.info.server_version
        if version < OLDEST:
            raise Unavailable(f"PostgreSQL {version // 10_000} is too old", hint="tampu needs 13 or newer")
        ours, synchronous = not _pooled(connection, place, patience), _DURABILITIES[place.durability]
        if patience is not None and not ours:
            patience = max(patience, POOLED_SECONDS)
        db = Db(connection, place.schema, ours=ours, synchronous=synchronous, dead_rows=dead_rows, patience=patience)
        if db.ours:
            db.rows("configure_session", False)
        return db
    except BaseException:
        connection.close()
        raise


def durability(connection: psycopg.Connection[Any], place: Target) -> str:
    """The durability we get: less than asked for if the server does not flush its log to disk."""
    off = turned_off(connection)
    if off and place.strict:
        raise InvalidConfig(
            f"durability full was asked for, but the server has {off} off",
            field="durability",
            hint=f"turn {off} on in the server's configuration",
        )
    return "none" if off else place.durability


def turned_off(connection: psycopg.Connection[Any]) -> str:
    """Names of the server settings for crash safety that are off."""
    rows = connection.execute(
        "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name"
    )
    return " and ".join(name for (name,) in rows.fetchall())


def _pooled(connection: psycopg.Connection[Any], place: Target, patience: float | None) -> bool:
    """True if there is a pooler between us and the server."""
    patience = None if patience is None else max(patience, POOLED_SECONDS)
    row = Db(connection, place.schema, ours=False, patience=patience).row("select_session_number")
    return row is None or row[0] != connection.info.backend_pid


def translate(error: psycopg.Error, place: Target) -> TampuError:  # noqa: PLR0911 - one line per meaning
    """The error for the caller. Nothing of the call took effect."""
    text = str(error).strip().partition("\n")[0]
    if isinstance(error, errors.DiskFull):
        return StorageFull("the server's disk is full; nothing was stored", hint="free some space, then try again")
    if isinstance(error, errors.InsufficientPrivilege):
        return Forbidden(
            f"{place.shown}: {text}", hint=f"have the schema's owner run tampu migrate, and grant on {place.schema}"
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return Unavailable(f"{place.shown} is read only: {text}", hint="connect to the primary server")
    if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName | errors.UndefinedColumn):
        return StorageError(f"{place.shown}: {text}", hint="wrong schema, or another version of it: run tampu migrate")
    if isinstance(error, errors.InvalidPassword | errors.InvalidAuthorizationSpecification):
        return Forbidden(f"{place.shown}: {text}", hint="check user and password in the url")
    if isinstance(error, errors.LockNotAvailable | errors.QueryCanceled):
        return Unavailable(f"{place.shown}: {text}", hint="look for a long transaction on the database")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return Unavailable(f"{place.shown} cannot be reached: {text}", hint="is the server running?")
    return StorageError(f"{place.shown}: {text}")
