"""Background threads of an engine with an index in Redis: one repairs the index, one listens for wake-ups."""

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
Run = Callable[[Callable[[Db], Any]], Any]


class IndexRepair:
    def __init__(self, index: Index, run: Run) -> None:
        self._index = index
        self._run_query = run
        self._stop = threading.Event()
        self._check()
        self._threads = [
            threading.Thread(target=self._repair_loop, name="tampu-index", daemon=True),
            threading.Thread(target=self._listen_loop, name="tampu-index-wakeup", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _repair_loop(self) -> None:
        index = self._index
        while not self._stop.is_set():
            if index.complete or index.refused:
                index.check_wanted.wait(SECONDS)
            else:
                self._stop.wait(SECONDS / 10)
            if self._stop.is_set() or (index.complete and not index.check_wanted.is_set()):
                continue
            index.check_wanted.clear()
            self._check()

    def _check(self) -> None:
        try:
            self._index.check(self._repair)
        except (pymysql.Error, TampuError) as error:
            log.debug("the index is not repaired yet: %s", error)

    def _repair(self, index: Index, anew: bool) -> None:
        """Add what Redis lacks: all ready messages, or only those listed in `stale`."""
        rows = self._run_query(lambda db: db.rows("select_stale", _STEP))
        if anew or any(q == 0 for _, q, _, _ in rows):
            with index.rebuild() as ours:
                if not ours:
                    return
                self._add_all(index)
        elif rows:
            index.add([(q, rank, pos) for _, q, rank, pos in rows])
        if rows:
            self._run_query(lambda db: db.send("delete_stale", Ints(no for no, _, _, _ in rows)))

    def _add_all(self, index: Index) -> None:
        """Add all ready messages in the order of their places. What becomes ready meanwhile, its own process adds."""
        rows = self._after(0, _END, _END)  # queue 0 has no messages
        while rows:
            index.add(rows)
            rows = self._after(*rows[-1])

    def _after(self, q: int, rank: int, pos: int) -> list[Any]:
        found: list[Any] = self._run_query(lambda db: db.rows("page_all_ready", q, rank, pos, _STEP))
        return found

    def _listen_loop(self) -> None:
        while not self._stop.is_set():
            if self._index.up:
                try:
                    self._index.listen(self._stop)
                except redis.RedisError as error:
                    log.debug("wake-ups through Redis are off, retrying in %s s: %s", SECONDS, error)
            self._stop.wait(SECONDS)

    def close(self) -> None:
        self._stop.set()
        self._index.check_wanted.set()
        self._index.wake_listeners()
        for thread in self._threads:
            thread.join()
        self._index.close()
