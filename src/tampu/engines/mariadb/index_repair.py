"""Keeps the index in Redis as the database is: repairs it when it is wrong, and rings between processes.

Two threads of an engine that has an index. One waits until something is wrong; one hears others ring.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pymysql
import redis

from tampu.engines.mariadb.index import SECONDS, Index
from tampu.engines.sql.db import Db, Ints
from tampu.model.errors import TampuError

log = logging.getLogger("tampu")
_STEP = 5_000
_END = (1 << 63) - 1
Ask = Callable[[Callable[[Db], Any]], Any]


class IndexRepair:
    def __init__(self, index: Index, ask: Ask) -> None:
        self._index = index
        self._ask = ask
        self._stop = threading.Event()
        self._look()
        self._threads = [
            threading.Thread(target=self._keep, name="tampu-index", daemon=True),
            threading.Thread(target=self._hear, name="tampu-index-bell", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _keep(self) -> None:
        index = self._index
        while not self._stop.is_set():
            if index.whole or index.refused:
                index.wanted.wait(SECONDS)
            else:
                self._stop.wait(SECONDS / 10)
            if self._stop.is_set() or (index.whole and not index.wanted.is_set()):
                continue
            index.wanted.clear()
            self._look()

    def _look(self) -> None:
        try:
            self._index.look(self._repair)
        except (pymysql.Error, TampuError) as error:
            log.debug("the index is not repaired yet: %s", error)

    def _repair(self, index: Index, anew: bool) -> None:
        """Bring into Redis what it lacks: all that is ready, or what `stale` names."""
        rows = self._ask(lambda db: db.rows("select_stale", _STEP))
        if anew or any(q == 0 for _, q, _, _ in rows):
            with index.making() as ours:
                if not ours:
                    return
                self._make(index)
        elif rows:
            index.add([(q, rank, pos) for _, q, rank, pos in rows])
        if rows:
            self._ask(lambda db: db.send("delete_stale", Ints(no for no, _, _, _ in rows)))

    def _make(self, index: Index) -> None:
        """All that is ready, by growing place. What becomes ready meanwhile, its own process tells."""
        rows = self._after(0, _END, _END)  # queue 0 has no messages
        while rows:
            index.add(rows)
            rows = self._after(*rows[-1])

    def _after(self, q: int, rank: int, pos: int) -> list[Any]:
        found: list[Any] = self._ask(lambda db: db.rows("page_all_ready", q, rank, pos, _STEP))
        return found

    def _hear(self) -> None:
        while not self._stop.is_set():
            if self._index.up:
                try:
                    self._index.listen(self._stop)
                except redis.RedisError as error:
                    log.debug("nobody rings for a moment: %s", error)
            self._stop.wait(SECONDS)

    def close(self) -> None:
        self._stop.set()
        self._index.wanted.set()
        for thread in self._threads:
            thread.join()
        self._index.close()
