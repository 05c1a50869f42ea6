"""The engines that the tests of Spark run on. A new one is one more line, and whatever makes its reads small."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tampu
from tampu.broker import access
from tampu.stores.arrow import packed_journal, snapshot_rows
from tampu.stores.open_store import open_store, store_of
from tampu.stores.port import ArrowStore
from tampu.stores.redis import journal, messages
from tampu.stores.redis import rows as redis_rows
from tampu.stores.sql import mariadb as mariadb_store
from tampu.stores.sql import row_ranges
from tampu.stores.sql import rows as sql_rows
from tampu.stores.sql import sqlite as sqlite_store
from tests.servers import mariadb, postgres, redis
from tests.servers.http import Stall


class _Clock:
    """The clock of a server, which a test may set to its own."""

    def __init__(self) -> None:
        self.given: Any = None

    def now(self) -> int:
        return time.time_ns() // 1000 if self.given is None else int(self.given.now())


class _Web:
    """Servers, each over a file; a test closes them when it ends."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, _Clock, Stall]] = {}
        self._stores: dict[str, ArrowStore] = {}

    def url(self, folder: Path) -> str:
        file, clock = str(folder / "served.db"), _Clock()
        stall = Stall(url=file, auth=False, maintenance=False, key_file=folder / "key", clock=clock)
        self._open[stall.url] = (file, clock, stall)
        return stall.url

    def library(self, url: str, clock: Any) -> str:
        """What is behind a url, for the library in this process; both go by the same clock."""
        if url not in self._open:
            return url
        file, own, _ = self._open[url]
        own.given = clock
        return file

    def store(self, queue: tampu.Store) -> ArrowStore | None:
        """The server's, if the queue is the library on what a server serves."""
        for url, (file, _, _) in self._open.items():
            if getattr(access.engine(queue), "path", None) == os.path.realpath(file):
                if url not in self._stores:
                    self._stores[url] = open_store(url)
                return self._stores[url]
        return None

    def close(self) -> None:
        while self._stores:
            self._stores.popitem()[1].__exit__(None, None, None)
        while self._open:
            self._open.popitem()[1][2].stop()


web = _Web()


def opened(url: str, clock: Any = None, **options: Any) -> tampu.Store:
    """The library on the store that Spark finds behind a url."""
    return tampu.open(web.library(url, clock), maintenance=False, clock=clock, **options)


def store_for(queue: tampu.Store) -> ArrowStore:
    """The store as Spark has it, with the clock of the test."""
    return web.store(queue) or store_of(access.engine(queue))


URLS: dict[str, Callable[[Path], str]] = {
    "file": lambda folder: str(folder / "jobs.db"),
    "postgres": lambda _: postgres.databases.url(),
    "mariadb": lambda _: mariadb.databases.url(),
    "redis": lambda _: redis.redis.url(),
    "http": web.url,
    "cluster": lambda _: redis.cluster.url(),
}
"""Each gives an empty store."""


def partition(engine: str, queue: str, tenant: str = "default") -> str:
    """The part of the journal that a queue is in."""
    return f"{tenant}/{queue}" if engine in ("redis", "cluster") else "0"


def small_pieces(monkeypatch: Any, least: int, rows: int) -> None:
    """Few messages make many pieces and batches."""
    monkeypatch.setattr(snapshot_rows, "LEAST", least)
    for module in (sql_rows, mariadb_store, redis_rows):
        monkeypatch.setattr(module, "ROWS", rows)
    monkeypatch.setattr(row_ranges, "RANGE_SIZE", -(-rows // 2))
    monkeypatch.setattr(messages, "STEP", rows)


def small_records(monkeypatch: Any, rows: int, records: int) -> None:
    """Few transitions make many batches of the journal."""
    monkeypatch.setattr(packed_journal, "ROWS", rows)
    monkeypatch.setattr(packed_journal, "RECORDS", records)
    monkeypatch.setattr(journal, "ENTRIES", records)


def small_batches(monkeypatch: Any, size: int) -> None:
    """Batches of messages have about so many bytes."""
    for module in (sqlite_store, sql_rows, row_ranges, mariadb_store, redis_rows):
        monkeypatch.setattr(module, "BYTES", size)
