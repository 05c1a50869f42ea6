"""Where the machine's store lives: how to open it, and how to look inside it."""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from tests.conformance.harness import until
from tests.model import checks, checks_redis, checks_sql
from tests.model.reference import ENDED, Model
from tests.servers import mariadb, postgres, redis


class Place:
    """A store of its own for one run of the machine."""

    url: str
    durability: str | None = None
    can_reopen = True
    sweeps_everywhere = True
    """A claim lets time have its effect in every queue, not only in those it claims from."""

    unordered: tuple[str, ...] = ENDED
    """States whose lists have an order of the engine's own."""

    def agree(self, engine: Any, model: Model) -> None:
        """What is inside fits the model."""
        checks.tables_agree(engine, model)

    def opened(self, engine: Any) -> None:
        """It is about to be used: nothing that depends on the time of day goes on in it."""

    def abandon(self) -> None:
        """As after a kill: what is opened next is what was stored at this moment."""

    def remove(self) -> None:
        """It is not needed any more."""


class InMemory(Place):
    url = "memory://"
    can_reopen = False


class OnDisk(Place):
    durability = "process"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tampu-model-"))
        self._life = 0
        self.url = str(self._folder / "jobs.db")

    def abandon(self) -> None:
        path = Path(self.url)
        self._life += 1
        self.url = str(path.with_name(f"jobs{self._life}.db"))
        for end in ("", "-wal"):
            if Path(f"{path}{end}").exists():
                shutil.copyfile(f"{path}{end}", f"{self.url}{end}")

    def remove(self) -> None:
        shutil.rmtree(self._folder)


class OnRedis(Place):
    unordered = (*ENDED, "leased")  # by the end of the lease
    sweeps_everywhere = False

    def __init__(self) -> None:
        self.url = redis.redis.url()

    def agree(self, engine: Any, model: Model) -> None:
        checks_redis.keys_agree(engine, model)
        checks_redis.fill_blocks(engine, model)


class OnCluster(OnRedis):
    def __init__(self) -> None:
        self.url = redis.cluster.url()


class OnPostgres(Place):
    def __init__(self) -> None:
        self.url = postgres.databases.url()

    def agree(self, engine: Any, model: Model) -> None:
        checks_sql.postgres_agrees(engine, model)


class OnMariaDb(Place):
    def __init__(self) -> None:
        self.url = mariadb.databases.url()

    def agree(self, engine: Any, model: Model) -> None:
        checks_sql.mariadb_agrees(engine, model)


class OnMariaDbWithRedis(OnMariaDb):
    def __init__(self) -> None:
        self.url = mariadb.indexed()
        self._unhurried = mock.patch("tampu.engines.mariadb.index.SCAN_SECONDS", math.inf)
        self._unhurried.start()

    def remove(self) -> None:
        self._unhurried.stop()

    def opened(self, engine: Any) -> None:
        until(lambda: engine.index.complete)

    def agree(self, engine: Any, model: Model) -> None:
        super().agree(engine, model)
        checks_sql.index_agrees(engine)
