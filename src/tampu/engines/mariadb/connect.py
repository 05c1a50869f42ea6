"""Parses the url, connects, and translates MariaDB's errors."""

from __future__ import annotations

import re
import ssl
import urllib.parse
from typing import Any

import msgspec
import pymysql
from pymysql.constants import CLIENT

from tampu.engines.mariadb.database import Db
from tampu.engines.mariadb.ops.maintenance import LOCK_SECONDS
from tampu.model.errors import Forbidden, InvalidConfig, StorageError, StorageFull, TampuError, Unavailable

OLDEST = (10, 6)
CONNECT_SECONDS = 10
READ_SECONDS = 120
"""A server that has not replied by then is gone: every statement of ours is bounded."""
IDLE_SECONDS = 8 * 3600
NAME = re.compile(r"[A-Za-z0-9_$\-]{1,64}\Z")
_OWN = ("durability", "index")
_TLS = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_identity")
_HERE = ("localhost", "127.0.0.1", "::1")
_ORDER = ("none", "process", "full")
_DEADLOCK, _LOCK_TIMEOUT = 1213, 1205
_GONE = (
    1040,  # too many connections
    1053,  # shutting down
    1152, 1158, 1159, 1160, 1161,  # the connection was aborted, packets were lost
    1927,  # killed
    2002, 2003, 2006, 2013, 2055,
)  # fmt: skip
_FULL = (1021, 1030, 1114, 3675)
_DENIED = (1044, 1045, 1142, 1143, 1227, 1370, 1698)
_READ_ONLY = (1290, 1792, 1836)
_UNKNOWN = (1054, 1146, 4091)


class Target(msgspec.Struct, frozen=True):
    """Where to connect, and as what."""

    options: dict[str, Any]
    database: str
    durability: str | None
    """The durability the user asked for, if any."""
    index: str | None
    """The url of a Redis that holds the order of ready messages."""
    shown: str
    """The url without its password."""


def target(url: str, durability: str | None) -> Target:
    """The parts of ``mariadb://user:password@host:port/database?options``."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or 3306
    except ValueError as error:
        raise InvalidConfig(f"the url is not valid: {error}", field="url") from None
    given = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
    own = {name: given.pop(name) for name in _OWN if name in given}
    database = urllib.parse.unquote(parts.path.lstrip("/"))
    if not NAME.match(database):
        raise InvalidConfig(
            f"{database!r:.80} is not a valid database name", field="url", hint="mariadb://user:password@host/database"
        )
    durability = own.get("durability", durability)
    if durability is not None and durability not in _ORDER:
        raise InvalidConfig(
            f"no such durability: {durability}",
            field="durability",
            hint="full, process or none: the least that the server must give",
        )
    options: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": port,
        "user": urllib.parse.unquote(parts.username or "root"),
        "password": urllib.parse.unquote(parts.password or ""),
        "database": database,
    }
    socket = given.pop("unix_socket", None)
    if socket is not None:
        options["unix_socket"] = socket
    tls = {name: given.pop(name) for name in _TLS if name in given}
    if tls:
        options["ssl"] = _tls(tls)
    elif options["host"] in _HERE or socket is not None:
        options["ssl_disabled"] = True  # TLS would cost 20 ms per connection and protect nothing on this machine
    if given:
        known = ", ".join([*_OWN, "unix_socket", *_TLS])
        raise InvalidConfig(f"no such option in the url: {', '.join(given)}", field="url", hint=f"known: {known}")
    shown = f"{options.get('unix_socket') or options['host']}:{port}/{database}"
    return Target(options, database, durability, own.get("index"), shown)


def _tls(given: dict[str, str]) -> ssl.SSLContext:
    """A TLS context that checks what the user asked for; the driver's own default accepts any certificate."""
    identity = given.get("ssl_verify_identity", "false")
    if identity not in ("true", "false"):
        raise InvalidConfig("ssl_verify_identity must be true or false", field="url")
    try:
        context = ssl.create_default_context(cafile=given.get("ssl_ca"))
        if "ssl_cert" in given:
            context.load_cert_chain(given["ssl_cert"], given.get("ssl_key"))
    except OSError as error:
        raise InvalidConfig(f"a certificate cannot be read: {error}", field="url") from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # self-signed certificates of servers fail the strict check
    context.check_hostname = identity == "true"
    if identity == "false" and "ssl_ca" not in given:
        context.verify_mode = ssl.CERT_NONE
    return context


def connect(place: Target) -> Db:
    """Connect in autocommit mode: we send BEGIN and COMMIT ourselves."""
    connection = pymysql.connect(
        **place.options,
        charset="utf8mb4",
        autocommit=True,
        client_flag=CLIENT.MULTI_STATEMENTS,
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        write_timeout=READ_SECONDS,
        program_name="tampu",
    )
    try:
        _check_version(str(connection.get_server_info()))  # type: ignore[no-untyped-call]  # it has no types
        db = Db(connection, place.database, ours=True, most_bytes=1 << 20)
        db.send("configure_session", LOCK_SECONDS, IDLE_SECONDS)
        ((_, _, _, packet),) = db.rows("select_durability")
        # Half of the packet limit: a single large body is never split and needs room for the SQL around it.
        db.most_bytes = max(1 << 16, min(packet // 2, 4 << 20))
        return db
    except BaseException:
        connection.close()
        raise


def _check_version(text: str) -> None:
    """Refuse MySQL and older servers, which lack features that our statements use."""
    match = re.search(r"(\d+)\.(\d+)\.\d+-MariaDB", text)
    if not match:
        raise Unavailable(f"this is not MariaDB: {text}", hint="tampu needs MariaDB 10.6 or newer")
    if (int(match[1]), int(match[2])) < OLDEST:
        raise Unavailable(f"MariaDB {match[1]}.{match[2]} is too old", hint="tampu needs 10.6 or newer")


def durability(db: Db, wanted: str | None) -> str:
    """The server's durability, which a session cannot change. Raises InvalidConfig if it is less than asked for."""
    ((flush, binlog, sync, _),) = db.rows("select_durability")
    gives = "full"
    if flush not in (1, 3):
        gives = "process" if flush == 2 else "none"
    elif binlog and sync != 1:
        gives = "process"  # after a crash of the machine, commits that the binary log lacks are rolled back
    if wanted is not None and _ORDER.index(gives) < _ORDER.index(wanted):
        raise InvalidConfig(
            f"durability {wanted} was asked for, but the server gives {gives}",
            field="durability",
            hint="set on the server: innodb_flush_log_at_trx_commit = 1, and sync_binlog = 1 where it has a binary log",
        )
    return gives


def code(error: BaseException | None) -> int:
    return error.args[0] if isinstance(error, pymysql.Error) and error.args and isinstance(error.args[0], int) else 0


class MariaDriver:
    """See `tampu.engines.sql.db.Driver`."""

    error: type[Exception] = pymysql.Error

    def __init__(self, place: Target) -> None:
        self.place = place
        self.shown = place.shown

    def connect(self) -> Db:
        return connect(self.place)

    def gone(self, error: BaseException) -> bool:
        return code(error) in _GONE or (isinstance(error, pymysql.InterfaceError) and code(error) == 0)

    def retriable(self, error: BaseException) -> bool:
        return code(error) in (_DEADLOCK, _LOCK_TIMEOUT)

    def locked(self, error: BaseException) -> bool:
        return code(error) == _LOCK_TIMEOUT

    def read_only(self, error: BaseException | None) -> bool:
        return code(error) in _READ_ONLY

    def translate(self, error: pymysql.Error) -> TampuError:  # noqa: PLR0911 - one line per meaning
        number, shown = code(error), self.place.shown
        text = str(error.args[1] if len(error.args) > 1 else error).strip().partition("\n")[0]
        if number in _FULL:
            return StorageFull("the server's disk is full; nothing was stored", hint="free some space, then try again")
        if number in _DENIED:
            return Forbidden(f"{shown}: {text}", hint="check user and password in the url, and the user's rights")
        if number == 1049:
            return InvalidConfig(f"{shown}: {text}", field="url", hint=f"CREATE DATABASE `{self.place.database}`")
        if number in _READ_ONLY:
            return Unavailable(f"{shown} is read only: {text}", hint="connect to the primary server")
        if number in _UNKNOWN:
            return StorageError(f"{shown}: {text}", hint="the tables have another version: run tampu migrate")
        if number in (_DEADLOCK, _LOCK_TIMEOUT, 1317, 1969, 3024):
            return Unavailable(f"{shown}: {text}", hint="look for a long transaction on the database")
        if number == 1153:
            return StorageError(f"{shown}: {text}", hint="raise max_allowed_packet on the server")
        if self.gone(error):
            return Unavailable(f"{shown} cannot be reached: {text}", hint="is the server running?")
        return StorageError(f"{shown}: {text}")
