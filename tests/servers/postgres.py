"""A private PostgreSQL server: in a temporary folder, on a free port, stopped by its own process id.

PostgreSQL refuses to run as root, so a test run of root's starts it as another user.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psycopg

from tampu.engines.postgres import migrations
from tests.servers.ports import free_port
from tests.servers.watcher import Watcher

PACKAGE = "postgresql"
_START_SECONDS = 60
_PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/local/pgsql/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
)
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""For tests that ask what is stored, not whether it survives."""


CHOSEN = "TAMPU_TEST_POSTGRES"
"""Names the folder of another version's programs: see tools/test-versions."""


def binaries() -> Path:
    """The folder of initdb and postgres: the one that was chosen, or the newest that is installed."""
    if CHOSEN in os.environ:
        return Path(os.environ[CHOSEN])
    found = [path for place in _PLACES for path in Path("/").glob(place[1:]) if (path / "initdb").exists()]
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path).resolve().parent)
    if not found:
        raise RuntimeError(f"no PostgreSQL server on this machine: install the Debian package {PACKAGE}")
    return max(found, key=_version)


def _version(folder: Path) -> int:
    said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return int(said.split()[2].split(".")[0].rstrip("abcdevlrt"))


@functools.cache
def as_user() -> dict[str, Any]:
    """For subprocess: whom to run as."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return {"user": found.pw_uid, "group": found.pw_gid}
    raise RuntimeError("PostgreSQL does not run as root: make a user called postgres")


def _folder(where: Path | None = None) -> Path:
    made = Path(tempfile.mkdtemp(prefix="tampu-postgres-", dir=where))
    if as_user():
        os.chown(made, as_user()["user"], as_user()["group"])
    return made


@functools.cache
def _unused_data() -> Path:
    """What every server begins with a copy of: to copy it takes a tenth of the time of initdb."""
    data = _folder() / "data"
    atexit.register(shutil.rmtree, data.parent, ignore_errors=True)
    done = subprocess.run(
        [
            binaries() / "initdb", "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C",
            f"--pgdata={data}",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/", env=_ENVIRONMENT, check=False,
        **as_user(),
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"initdb failed: {done.stdout}")
    return data


class Postgres:
    """One server; `start` and `stop` may alternate, the data stays until `remove`."""

    def __init__(self, settings: Mapping[str, str] = FAST, *, folder: Path | None = None) -> None:
        self.settings = dict(settings)
        self.port = free_port()
        self.folder = _folder(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: Watcher | None = None
        subprocess.run(["cp", "-a", _unused_data(), self.data], check=True)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, database: str = "postgres", user: str = "postgres", **options: str) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}{'?' if query else ''}{query}"

    def start(self) -> Self:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "max_connections": "200",
            "logging_collector": "off",
            "dynamic_shared_memory_type": "mmap",  # in the folder: what a killed server leaves goes with it
            **self.settings,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [binaries() / "postgres", "-D", str(self.data), *options],
                stdout=log, stderr=log, cwd="/", env=_ENVIRONMENT, start_new_session=True, **as_user(),
            )  # fmt: skip
        self._watcher = Watcher(self._process.pid)
        self._wait()
        return self

    def _wait(self) -> None:
        give_up, pause = time.monotonic() + _START_SECONDS, threading.Event()
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
            except psycopg.OperationalError as error:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > give_up:
                    log = (self.folder / "log").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"PostgreSQL did not start: {error}\n{log}") from error
                pause.wait(0.02)
            else:
                return

    def kill(self) -> None:
        """As a crash: the server and all it started, at once."""
        if self._process is not None:
            _freeze(self._process)
            sessions = _children(self._process.pid)
            self._process.kill()
            for pid in sessions:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._gone()
            give_up, pause = time.monotonic() + _START_SECONDS, threading.Event()
            while any(Path(f"/proc/{pid}").exists() for pid in sessions) and time.monotonic() < give_up:
                pause.wait(0.005)  # nobody else may start on their shared memory

    def stop(self) -> None:
        """Fast shutdown: sessions are ended, everything is written."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
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


def _freeze(server: subprocess.Popen[bytes]) -> None:
    """From here on it starts nothing: a session that begins while the others are counted would outlive the kill."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        if server.poll() is None:
            os.kill(server.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, server.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def _children(parent: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(place.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(place.parent.name))
    return found


_ENVIRONMENT = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C", "TZ": "UTC"}


_TABLES = """
SELECT string_agg(format(
  CASE WHEN c.relname = ANY (%(kept)s) THEN 'DELETE FROM %%I.%%I;' ELSE 'DROP TABLE %%I.%%I;' END,
  n.nspname, c.relname), ' ') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relkind = 'r' AND c.relname <> 'meta'
"""
_AGAIN = """
INSERT INTO {schema}.journal_end VALUES (0); INSERT INTO {schema}.revision VALUES (0);
SELECT setval('{schema}.number', 1024, false), setval('{schema}.entry', 1, false)
"""


SCHEMAS = ("store0", "store1", "store2")


class Databases:
    """One fast server for all tests of this process; each test gets an empty schema of it.

    Emptying a small schema takes two milliseconds, making one fifty. A few take turns, for tests with several.
    """

    def __init__(self) -> None:
        self._server: Postgres | None = None
        self._turn = 0
        self._tables: dict[str, list[str]] = {}
        self._db: psycopg.Connection[Any] | None = None

    @property
    def server(self) -> Postgres:
        if self._server is None:
            self._server = Postgres().start()
            atexit.register(self._stop)
        return self._server

    def _stop(self) -> None:
        if self._db is not None:
            self._db.close()
        if self._server is not None:
            self._server.remove()

    def url(self) -> str:
        """An empty store. Tables without a schema's name are made in it too, so they are gone with the next test."""
        schema = self.empty()
        return self.server.url(schema=schema, options=f"-csearch_path%3D{schema}")

    def empty(self) -> str:
        """The schema of an empty store."""
        self._turn += 1
        schema = SCHEMAS[self._turn % len(SCHEMAS)]
        if self._db is None:
            self._db = psycopg.connect(self.server.url(), autocommit=True)
        db = self._db
        if schema not in self._tables:
            migrations.migrate(db, schema)
            found = db.execute("SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace", (schema,))
            self._tables[schema] = [row[0] for row in found.fetchall()]
        (clean,) = db.execute(_TABLES, {"schema": schema, "kept": self._tables[schema]}).fetchone() or ("",)
        db.execute(clean + _AGAIN.format(schema=schema))
        return schema

    def end_sessions(self) -> None:
        """Every session of tampu's on the server is ended, as by an administrator."""
        with psycopg.connect(self.server.url(), autocommit=True) as db:
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND application_name LIKE 'tampu%'"
            )


databases = Databases()
