"""A private MariaDB server: in a temporary folder, on a free port, stopped by its own process id."""

from __future__ import annotations

import atexit
import functools
import getpass
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pymysql

from tampu.engines.mariadb import migrations
from tests.servers import redis
from tests.servers.ports import free_port
from tests.servers.watcher import Watcher

PACKAGE = "mariadb-server"
_START_SECONDS = 60
FAST = {"innodb_flush_method": "nosync"}
"""For tests that ask what is stored, not whether it survives."""
_SMALL = {
    "innodb_buffer_pool_size": "64M",
    "innodb_log_file_size": "32M",
    "innodb_log_buffer_size": "4M",
    "innodb_buffer_pool_dump_at_shutdown": "OFF",
    "innodb_buffer_pool_load_at_startup": "OFF",
    "performance_schema": "OFF",
    "max_connections": "300",
    "table_open_cache": "400",
}


def binary(name: str) -> Path:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/bin:/usr/libexec")
    if not found:
        raise RuntimeError(f"no {name} on this machine: install the Debian package {PACKAGE}")
    return Path(found)


@functools.cache
def _unused_data() -> Path:
    """What every server begins with a copy of: to make it takes ten times as long."""
    data = Path(tempfile.mkdtemp(prefix="tampu-mariadb-")) / "data"
    atexit.register(shutil.rmtree, data.parent, ignore_errors=True)
    done = subprocess.run(
        [
            binary("mariadb-install-db"), "--no-defaults", f"--user={getpass.getuser()}", f"--datadir={data}",
            "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=32M",
            "--innodb-flush-method=nosync", f"--tmpdir={data.parent}",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"mariadb-install-db failed: {done.stdout}")
    return data


class MariaDb:
    """One server; `start` and `stop` may alternate, the data stays until `remove`."""

    def __init__(self, settings: Mapping[str, str] = FAST, *, folder: Path | None = None) -> None:
        self.settings = {**_SMALL, **settings}
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="tampu-mariadb-", dir=folder))
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: Watcher | None = None
        subprocess.run(["cp", "-a", _unused_data(), self.data], check=True)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, database: str = "tampu", user: str = "root", **options: str) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"mariadb://{user}@127.0.0.1:{self.port}/{database}{'?' if query else ''}{query}"

    def connect(self, database: str | None = None, **options: Any) -> pymysql.Connection[Any]:
        """A connection of the server's owner."""
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, **{"autocommit": True, **options}
        )

    def start(self) -> Self:
        settings = {
            "port": str(self.port),
            "bind_address": "127.0.0.1",
            "socket": str(self.folder / "socket"),
            "pid_file": str(self.folder / "pid"),
            "tmpdir": str(self.folder),  # a server that starts removes what it finds in it
            "user": getpass.getuser(),
            **self.settings,
        }
        options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [binary("mariadbd"), "--no-defaults", f"--datadir={self.data}", *options],
                stdout=log, stderr=log, cwd="/", start_new_session=True,
            )  # fmt: skip
        self._watcher = Watcher(self._process.pid)
        self._wait()
        with self.connect() as db, db.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS tampu")
        return self

    def _wait(self) -> None:
        give_up, pause = time.monotonic() + _START_SECONDS, threading.Event()
        while True:
            try:
                self.connect(connect_timeout=5).close()
            except pymysql.OperationalError as error:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > give_up:
                    log = (self.folder / "log").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"MariaDB did not start: {error}\n{log}") from error
                pause.wait(0.02)
            else:
                return

    def kill(self) -> None:
        """As a crash, at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._gone()

    def stop(self) -> None:
        """Sessions are ended, everything is written."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
            self._gone()

    def _gone(self) -> None:
        self._process = None
        if self._watcher is not None:
            self._watcher.dismiss()
            self._watcher = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.remove()


class Databases:
    """One fast server for all tests of this process; each test gets an empty database of it.

    Emptying small tables takes a few milliseconds, making them a hundred. A few take turns, for tests with several.
    """

    def __init__(self) -> None:
        self._server: MariaDb | None = None
        self._turn = 0
        self._tables: dict[str, set[str]] = {}
        self._db: pymysql.Connection[Any] | None = None

    @property
    def server(self) -> MariaDb:
        if self._server is None:
            self._server = MariaDb().start()
            atexit.register(self._stop)
        return self._server

    def _stop(self) -> None:
        if self._db is not None:
            self._db.close()
        if self._server is not None:
            self._server.remove()

    def url(self) -> str:
        """An empty store. Tables that the last test made beside it are gone."""
        self._turn += 1
        database = f"store{self._turn % 3}"
        if self._db is None:
            self._db = self.server.connect()
        with self._db.cursor() as cursor:
            if database not in self._tables:
                cursor.execute(f"CREATE DATABASE {database}")
                migrations.migrate(self._db, database)
                self._tables[database] = set(self._names(cursor, database))
            for table in set(self._names(cursor, database)) - self._tables[database]:
                cursor.execute(f"DROP TABLE {database}.{table}")
            for rows in self._used(
                cursor, [f"{database}.{_of_tests(name)}" for name in sorted(self._tables[database])]
            ):
                cursor.execute(f"DELETE FROM {rows}")
            cursor.execute(f"INSERT INTO {database}.tampu_journal_end VALUES (1, 0, 0)")
            cursor.execute(f"INSERT INTO {database}.tampu_revision VALUES (1, 0)")
        return self.server.url(database)

    @staticmethod
    def _used(cursor: Any, parts: list[str]) -> list[str]:
        """The parts of tables that have rows: most tables are empty, and a DELETE costs more than a look."""
        cursor.execute("SELECT " + ", ".join(f"EXISTS (SELECT 1 FROM {part})" for part in parts))
        return [part for part, used in zip(parts, cursor.fetchone(), strict=True) if used]

    @staticmethod
    def _names(cursor: Any, database: str) -> list[str]:
        cursor.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND table_type = 'BASE TABLE'",
            (database,),
        )
        return [row[0] for row in cursor.fetchall()]

    def end_sessions(self) -> None:
        """Every session on a store of the server's is ended, as by an administrator."""
        with self.server.connect() as db, db.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db LIKE 'store%'")
            for (id,) in cursor.fetchall():
                cursor.execute(f"KILL CONNECTION {id}")


def _of_tests(table: str) -> str:
    """The rows of a table that a test may have left."""
    if table == "tampu_meta":
        return f"{table} WHERE name = 'index'"
    if table == "tampu_latch":
        return f"{table} WHERE false"
    return f"{table} WHERE q > 0" if table in ("tampu_ready", "tampu_placed", "tampu_leased") else table


databases = Databases()


def indexed() -> str:
    """An empty store whose order is in a Redis too, which is empty."""
    url = databases.url()
    with redis.redis.server.client() as client:
        client.flushall()
    place = urllib.parse.quote(redis.redis.server.url(), safe="")
    return f"{url}?index={place}"
