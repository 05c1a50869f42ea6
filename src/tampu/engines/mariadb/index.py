"""An optional copy of the order of ready messages in Redis: Redis proposes what to claim, the database decides.

Redis has the places (rank, position) of each queue's ready messages in a sorted set. A claim takes the first of them
and locks those rows in MariaDB; places without a row are dropped. Nothing depends on Redis: if anything is wrong with
it, `offer` returns nothing and the claim scans the database's own index.

The copy is incomplete if Redis has no valid mark (it was emptied, restarted or failed over), or if the database has
rows in `stale`: a process made messages ready and could not reach Redis. Then one process repairs it. A process that
dies between its commit and the update of Redis leaves no sign. So once a second a claim scans the database's index
anyway, and finds what has waited longest.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tampu.model.errors import InvalidConfig

log = logging.getLogger("tampu")
Place = tuple[int, int, int]
"""(q, rank, pos): the primary key of `ready`."""
SECONDS = 0.5
"""If Redis does not answer within this time, the database is used alone."""
SCAN_SECONDS = 1.0
"""Between two claims of a queue that scan the database's index even though Redis works."""
_REPAIR_SECONDS = 30
_PLACE = struct.Struct(">QQ")
_BIAS = 1 << 63


def member(rank: int, pos: int) -> bytes:
    """A place as bytes with the same order; all scores in the sorted set are equal."""
    return _PLACE.pack(rank + _BIAS, pos)


def place(raw: bytes) -> tuple[int, int]:
    rank, pos = _PLACE.unpack(raw)
    return rank - _BIAS, pos


class Index:
    def __init__(self, url: str, tail: int, on_remote_change: Callable[[], Any]) -> None:
        self._on_remote_change = on_remote_change
        self._base = f"{{tampu:index:{tail}}}"
        try:
            self._redis: Any = redis.Redis.from_url(
                url,
                socket_timeout=SECONDS,
                socket_connect_timeout=SECONDS,
                retry=Retry(NoBackoff(), 0),
                redis_connect_func=self._on_connect,
                protocol=2,
            )
        except ValueError as error:
            raise InvalidConfig(
                f"the url of the index is not valid: {error}", field="url", hint="?index=redis%3A%2F%2Fhost"
            ) from None
        folder = resources.files("tampu.engines.mariadb") / "lua"
        self._offer = self._redis.register_script((folder / "offer.lua").read_text())
        self._mark_complete = self._redis.register_script((folder / "whole.lua").read_text())
        self.up = False
        """Redis is reachable."""
        self.refused: str | None = None
        """Why this Redis is not used at all."""
        self._mark: bytes | None = None
        """The mark of a complete index; None while it may be incomplete."""
        self._run = b""
        """run_id of the Redis server."""
        self._scanned: dict[int, float] = {}
        self.check_wanted = threading.Event()
        """Set when the index must be checked."""

    def _on_connect(self, connection: Any) -> None:
        """Check the run_id of each new connection: another or a restarted server may have older data."""
        connection.on_connect()
        connection.send_command("INFO", "server")
        run = _run_of(connection.read_response())
        if run != self._run:
            self._run = run
            self.invalidate()

    def _disconnected(self, error: Exception) -> None:
        if self.up:
            log.warning("the index in Redis is not reachable, using the database alone: %s", error)
        self.up = False
        self._mark = None
        self.check_wanted.set()

    @property
    def complete(self) -> bool:
        return self._mark is not None

    def health(self) -> tuple[str, str]:
        """Status and note for `tampu doctor`."""
        if self.refused is not None:
            return ("bad", f"not used, {self.refused}; set it to noeviction")
        if not self.up:
            return ("warn", "Redis does not answer: claims use the database alone and are slower")
        if not self.complete:
            return ("warn", "it is being repaired: claims use the database alone meanwhile")
        return ("ok", "order and wake-ups come from Redis")

    # -- used by commits

    def offer(self, q: int, count: int) -> list[tuple[int, int]]:
        """Take the first places of a queue; empty if the claim must use the database's index."""
        now = time.monotonic()
        mark = self._mark
        if mark is None or now - self._scanned.get(q, 0.0) > SCAN_SECONDS:
            self._scanned[q] = now
            return []
        try:
            found = self._offer(keys=[f"{self._base}:mark", self._key(q)], args=[mark, count])
        except redis.RedisError as error:
            self._disconnected(error)
            return []
        if found is None:
            self.invalidate()
            return []
        return [place(raw) for raw in found]

    def _current_mark(self) -> bytes | None:
        """The mark, if it was set during this run of the server: after a restart its data may be old."""
        try:
            mark: bytes | None = self._redis.get(f"{self._base}:mark")
        except redis.RedisError as error:
            self._disconnected(error)
            return None
        return mark if mark is not None and mark.startswith(self._run) else None

    def update(self, entered: Sequence[Place], left: Sequence[Place], *, notify: bool) -> bool:
        """Add messages that became ready and remove those that left; False if Redis was not reachable."""
        try:
            with self._redis.pipeline(transaction=False) as pipeline:
                for q, members in _by_queue(entered):
                    pipeline.zadd(self._key(q), dict.fromkeys(members, 0))
                for q, members in _by_queue(left):
                    pipeline.zrem(self._key(q), *members)
                if notify:
                    pipeline.publish(f"{self._base}:bell", b"")
                pipeline.execute()
        except redis.RedisError as error:
            self._disconnected(error)
            return False
        return True

    def invalidate(self) -> None:
        """The index may be incomplete: stop using it, and have it checked."""
        self._mark = None
        self.check_wanted.set()

    def _key(self, q: int) -> str:
        return f"{self._base}:{q}"

    # -- repair

    def check(self, repair: Callable[[Index, bool], None]) -> None:
        """Check the index and repair it if needed; raises no Redis errors."""
        try:
            info = self._redis.info()
            if info.get("maxmemory_policy", "noeviction") != "noeviction":
                self.refused = f"its maxmemory-policy is {info['maxmemory_policy']}: it may evict a part"
                self.up = False
                return
            self.refused = None
            self.up = True
            repair(self, self._current_mark() is None)
            if self.up:
                self._mark = self._current_mark()
        except redis.RedisError as error:
            self._disconnected(error)

    @contextlib.contextmanager
    def rebuild(self) -> Iterator[bool]:
        """Rebuild the index unless another process does; marks it as complete at the end."""
        me = secrets.token_hex(8)
        key = f"{self._base}:making"
        ours = bool(self._redis.set(key, me, nx=True, ex=_REPAIR_SECONDS))
        yield ours
        if ours:
            self._mark_complete(keys=[f"{self._base}:mark", key], args=[self._run + secrets.token_bytes(8), me])

    def add(self, places: Sequence[Place]) -> None:
        """Add messages during a repair; raises Redis errors."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for q, members in _by_queue(places):
                pipeline.zadd(self._key(q), dict.fromkeys(members, 0))
            pipeline.expire(f"{self._base}:making", _REPAIR_SECONDS)
            pipeline.execute()

    # -- wake-ups

    def listen(self, stopped: threading.Event) -> None:
        """Call ``on_remote_change`` on each wake-up, until ``stopped`` is set or the connection is lost."""
        with self._redis.pubsub(ignore_subscribe_messages=True) as channel:
            channel.subscribe(f"{self._base}:bell")
            while not stopped.is_set():
                if channel.get_message(timeout=SECONDS / 2) is not None and not stopped.is_set():
                    self._on_remote_change()

    def wake_listeners(self) -> None:
        """Ours too: who stops it need not wait until it looks again."""
        if self.up:
            with contextlib.suppress(redis.RedisError):
                self._redis.publish(f"{self._base}:bell", b"")

    def close(self) -> None:
        self._redis.close()


def _run_of(info: Any) -> bytes:
    text: bytes = info if isinstance(info, bytes) else str(info).encode()
    return text.partition(b"run_id:")[2].partition(b"\r")[0]


def _by_queue(places: Sequence[Place]) -> Iterator[tuple[int, list[bytes]]]:
    found: dict[int, list[bytes]] = {}
    for q, rank, pos in places:
        found.setdefault(q, []).append(member(rank, pos))
    yield from found.items()
