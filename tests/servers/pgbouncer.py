"""A private pgbouncer in transaction mode before the tests' PostgreSQL: each transaction may get another session."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import psycopg

from tests.servers import postgres
from tests.servers.ports import free_port
from tests.servers.postgres import Postgres
from tests.servers.redis import until

PACKAGE = "pgbouncer"


def binary() -> Path:
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if found is None:
        raise RuntimeError(f"no pgbouncer on this machine: install the Debian package {PACKAGE}")
    return Path(found)


class Pgbouncer:
    """One pooler; `start` and `stop` may alternate."""

    def __init__(self, server: Postgres, sessions: int = 20) -> None:
        self.server = server
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="tampu-pgbouncer-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user = postgres.as_user()
        place = f"host=127.0.0.1 port={server.port} dbname=postgres"
        # A store's database here is the same one, with the store's schema for tables without a schema's name.
        databases = [f"{name} = {place} connect_query='SET search_path = {name}'" for name in postgres.SCHEMAS]
        (self._folder / "users").write_text('"postgres" ""\n')
        (self._folder / "ini").write_text(
            "\n".join(
                [
                    "[databases]", f"postgres = {place}", *databases, "[pgbouncer]",
                    "pool_mode = transaction", "auth_type = trust", "listen_addr = 127.0.0.1",
                    f"auth_file = {self._folder / 'users'}", f"listen_port = {self.port}", "unix_socket_dir =",
                    f"default_pool_size = {sessions}", "max_client_conn = 500", "server_round_robin = 1",
                ]
            )
        )  # fmt: skip
        if self._as_user:
            for path in (self._folder, *self._folder.iterdir()):
                os.chown(path, self._as_user["user"], self._as_user["group"])

    def url(self, database: str = "postgres", **options: str) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}{'?' if query else ''}{query}"

    def start(self) -> Self:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [binary(), self._folder / "ini"],
                stdout=log, stderr=log, cwd="/", start_new_session=True, **self._as_user,
            )  # fmt: skip
        until(self._answers, "pgbouncer")
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"pgbouncer did not start:\n{(self._folder / 'log').read_text()[-2000:]}")
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(60)
            self._process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class Databases:
    """Empty stores of the tests' server, reached through one pooler."""

    def __init__(self) -> None:
        self._pooler: Pgbouncer | None = None

    def url(self) -> str:
        schema = postgres.databases.empty()
        if self._pooler is None:
            self._pooler = Pgbouncer(postgres.databases.server).start()
            atexit.register(self._pooler.remove)
        return self._pooler.url(schema, schema=schema)


databases = Databases()
