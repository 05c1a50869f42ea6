"""From a url to connections, and what PostgreSQL's errors mean to a user.

A pooler between us and the server (pgbouncer in transaction mode) gives each transaction another session. It is
noticed by the process id of the server's session, which is not the one that the connection was told; then nothing is
prepared and nothing listens.
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
"""What was sent and not acknowledged by then is lost, and so is the connection."""
REPLY_SECONDS = 60
"""A server that has said nothing for so long is gone, also where something on the way to it acknowledges what we send.
Locks are waited for less long (see `database.LOCK_SECONDS`), and so are the batches of a commit."""
POOLED_SECONDS = 180
"""The same behind a pooler, which lets us wait for a session of its server: pgbouncer two minutes."""
_OWN = ("schema", "durability")
_DURABILITIES = {"full": "on", "process": "off"}
"""synchronous_commit; the server's own setting may be stricter than ``on``, and stays."""


class PostgresDriver:
    """See `tampu.engines.sql.db.Driver`."""

    error: type[Exception] = psycopg.Error

    def __init__(self, place: Target) -> None:
        self.place = place
        self.shown = place.shown
        self._stepping = DeadRowSkip()

    def connect(self) -> Db:
        return connect(self.place, self._stepping, patience=REPLY_SECONDS)

    def gone(self, error: BaseException) -> bool:
        return gone(error)

    def retriable(self, error: BaseException) -> bool:
        return retriable(error)

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
    """What our sessions ask of the server."""
    strict: bool
    """Whether ``full`` was asked for by name: then a server that gives less is refused."""
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
            f"{schema!r:.60} can not be a schema's name", field="url", hint="a-z 0-9 _, at most 40, not pg_…"
        )
    asked = own.get("durability", durability)
    durability = asked or "full"
    if durability not in _DURABILITIES:
        raise InvalidConfig(
            f"no such durability: {durability}",
            field="durability",
            hint="full (survives a crash of the server) or process (the last moments before one may be lost)",
        )
    # libpq knows no + for a space, as several settings in `options` have between them.
    rest = f"{base}?{urllib.parse.urlencode(options, quote_via=urllib.parse.quote)}" if options else base
    try:
        parts: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(rest)
    except psycopg.ProgrammingError as error:
        raise InvalidConfig(f"the url can not be read: {error}".strip(), field="url") from None
    parts.setdefault("connect_timeout", CONNECT_SECONDS)
    parts.setdefault("application_name", "tampu")
    for name, value in (("keepalives_idle", 30), ("keepalives_interval", 10), ("keepalives_count", 3)):
        parts.setdefault(name, value)
    parts.setdefault("tcp_user_timeout", LOST_SECONDS * 1000)
    shown = f"{parts.get('host', '')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
    return Target(psycopg.conninfo.make_conninfo(**parts), schema, durability, asked == "full", shown)


def connect(place: Target, stepping: DeadRowSkip | None = None, *, patience: float | None = None) -> Db:
    """A connection in autocommit: transactions are begun and ended by name.

    ``patience`` is for how many seconds the server may say nothing when it was asked something; None: for ever.
    """
    connection = psycopg.connect(place.conninfo, autocommit=True, prepare_threshold=None)
    try:
        version = connection.info.server_version
        if version < OLDEST:
            raise Unavailable(f"PostgreSQL {version // 10_000} is too old", hint="tampu needs 13 or newer")
        ours, synchronous = not _pooled(connection, place, patience), _DURABILITIES[place.durability]
        if patience is not None and not ours:
            patience = max(patience, POOLED_SECONDS)
        db = Db(connection, place.schema, ours=ours, synchronous=synchronous, stepping=stepping, patience=patience)
        if db.ours:
            db.rows("configure_session", False)
        return db
    except BaseException:
        connection.close()
        raise


def durability(connection: psycopg.Connection[Any], place: Target) -> str:
    """What there is: less than was asked for, if the server does not write its log to the disk."""
    off = turned_off(connection)
    if off and place.strict:
        raise InvalidConfig(
            f"durability full was asked for, the server has {off} off",
            field="durability",
            hint=f"turn {off} on in the server's configuration",
        )
    return "none" if off else place.durability


def turned_off(connection: psycopg.Connection[Any]) -> str:
    """Which settings that keep what was committed are off."""
    rows = connection.execute(
        "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name"
    )
    return " and ".join(name for (name,) in rows.fetchall())


def _pooled(connection: psycopg.Connection[Any], place: Target, patience: float | None) -> bool:
    """Is there a pooler between us and the server?"""
    patience = None if patience is None else max(patience, POOLED_SECONDS)
    row = Db(connection, place.schema, ours=False, patience=patience).row("select_session_number")
    return row is None or row[0] != connection.info.backend_pid


def gone(error: BaseException) -> bool:
    """Was it the connection, or the way to the server, that failed? Not what was asked of it."""
    shut_down = errors.AdminShutdown | errors.CrashShutdown | errors.CannotConnectNow | errors.TooManyConnections
    if isinstance(error, shut_down):
        return True
    wrong = errors.InvalidPassword | errors.InvalidAuthorizationSpecification | errors.InvalidCatalogName
    return (
        isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        and getattr(error, "sqlstate", None) is None
        and not isinstance(error, wrong)
    )


def retriable(error: BaseException) -> bool:
    """Did the server undo the transaction for the sake of others, so that it may simply be tried again?"""
    return isinstance(error, errors.DeadlockDetected | errors.SerializationFailure)


def translate(error: psycopg.Error, place: Target) -> TampuError:  # noqa: PLR0911 - one line per meaning
    """What an error of PostgreSQL means for the caller. Nothing of the call took effect."""
    said = str(error).strip().partition("\n")[0]
    if isinstance(error, errors.DiskFull):
        return StorageFull("the server's disk is full; nothing was stored", hint="make room and call again")
    if isinstance(error, errors.InsufficientPrivilege):
        return Forbidden(
            f"{place.shown}: {said}", hint=f"have the schema's owner run tampu migrate, and grant on {place.schema}"
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return Unavailable(f"{place.shown} is read only: {said}", hint="connect to the primary server")
    if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName | errors.UndefinedColumn):
        return StorageError(f"{place.shown}: {said}", hint="the schema is not tampu's, or of another version: migrate")
    if isinstance(error, errors.InvalidPassword | errors.InvalidAuthorizationSpecification):
        return Forbidden(f"{place.shown}: {said}", hint="check user and password in the url")
    if isinstance(error, errors.LockNotAvailable | errors.QueryCanceled):
        return Unavailable(f"{place.shown}: {said}", hint="look for a long transaction on the database")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return Unavailable(f"{place.shown} can not be reached: {said}", hint="is the server running?")
    return StorageError(f"{place.shown}: {said}")
