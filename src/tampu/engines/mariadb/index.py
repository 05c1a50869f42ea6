"""The order of ready messages, kept in Redis as well: it proposes, the database decides.

Redis has the places (rank, position) of each queue's ready messages in a sorted set. A claim takes the first of them,
and then locks those very rows in MariaDB: what is not there any more is dropped, and whoever gets a row has it. Nothing
depends on Redis. Whatever is wrong with it, `offer` gives nothing, and the claim walks the database's own index.

When is it wrong? It has no mark of being whole, made for this run of the server (it was emptied, restarted, failed
over); or the database has rows in `stale`: somebody has made messages ready and could not tell Redis. Then one process
repairs it. A process that dies between its commit and telling Redis leaves no trace: so once a second a claim
walks the database's index anyway, which finds what has been waiting longest.
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
"""Redis answers within this time, or goes without."""
LOOK_SECONDS = 1.0
"""Between two claims of a queue that walk the database's index, whatever Redis says."""
_REPAIR_SECONDS = 30
_PLACE = struct.Struct(">QQ")
_BIAS = 1 << 63


def member(rank: int, pos: int) -> bytes:
    """A place as bytes that sort as it does; all scores are the same."""
    return _PLACE.pack(rank + _BIAS, pos)


def place(raw: bytes) -> tuple[int, int]:
    rank, pos = _PLACE.unpack(raw)
    return rank - _BIAS, pos


class Index:
    def __init__(self, url: str, tail: int, heard: Callable[[], Any]) -> None:
        self._heard = heard
        self._base = f"{{tampu:index:{tail}}}"
        try:
            self._redis: Any = redis.Redis.from_url(
                url,
                socket_timeout=SECONDS,
                socket_connect_timeout=SECONDS,
                retry=Retry(NoBackoff(), 0),
                redis_connect_func=self._connecting,
                protocol=2,
            )
        except ValueError as error:
            raise InvalidConfig(
                f"the index can not be: {error}", field="url", hint="?index=redis%3A%2F%2Fhost"
            ) from None
        folder = resources.files("tampu.engines.mariadb") / "lua"
        self._offer = self._redis.register_script((folder / "offer.lua").read_text())
        self._finish = self._redis.register_script((folder / "whole.lua").read_text())
        self.up = False
        """Redis takes what it is told."""
        self.refused: str | None = None
        """Why this Redis is not used at all."""
        self._mark: bytes | None = None
        """The mark, while the index is whole as far as we know."""
        self._run = b""
        """Which run of the server it is that we talk to."""
        self._looked: dict[int, float] = {}
        self.wanted = threading.Event()
        """Somebody should look what is wrong."""

    def _connecting(self, connection: Any) -> None:
        """Every new connection: it may be to another server, or to one that was restarted and has older data."""
        connection.on_connect()
        connection.send_command("INFO", "server")
        run = _run_of(connection.read_response())
        if run != self._run:
            self._run = run
            self.doubt()

    def _lost(self, error: Exception) -> None:
        if self.up:
            log.warning("the index does not answer, the database serves alone: %s", error)
        self.up = False
        self._mark = None
        self.wanted.set()

    @property
    def whole(self) -> bool:
        return self._mark is not None

    def health(self) -> tuple[str, str]:
        """How it is, and what to know, for `tampu doctor`."""
        if self.refused is not None:
            return ("bad", f"not used, {self.refused}; set it to noeviction")
        if not self.up:
            return ("warn", "Redis does not answer: the database serves alone, slower")
        if not self.whole:
            return ("warn", "it is being repaired: the database serves alone meanwhile")
        return ("ok", "order and wake-ups come from Redis")

    # -- what commits do

    def offer(self, q: int, count: int) -> list[tuple[int, int]]:
        """Take the first places of a queue; nothing when the database must be asked."""
        now = time.monotonic()
        mark = self._mark
        if mark is None or now - self._looked.get(q, 0.0) > LOOK_SECONDS:
            self._looked[q] = now
            return []
        try:
            found = self._offer(keys=[f"{self._base}:mark", self._key(q)], args=[mark, count])
        except redis.RedisError as error:
            self._lost(error)
            return []
        if found is None:
            self.doubt()
            return []
        return [place(raw) for raw in found]

    def _current_mark(self) -> bytes | None:
        """The mark, if it was made for this run of the server: one that came back with its data is not believed."""
        try:
            told: bytes | None = self._redis.get(f"{self._base}:mark")
        except redis.RedisError as error:
            self._lost(error)
            return None
        return told if told is not None and told.startswith(self._run) else None

    def tell(self, entered: Sequence[Place], left: Sequence[Place], *, notify: bool) -> bool:
        """What became ready, and what is not any more. False: Redis does not know it."""
        try:
            with self._redis.pipeline(transaction=False) as sent:
                for q, members in _by_queue(entered):
                    sent.zadd(self._key(q), dict.fromkeys(members, 0))
                for q, members in _by_queue(left):
                    sent.zrem(self._key(q), *members)
                if notify:
                    sent.publish(f"{self._base}:bell", b"")
                sent.execute()
        except redis.RedisError as error:
            self._lost(error)
            return False
        return True

    def doubt(self) -> None:
        """It may lack something: have it looked at."""
        self._mark = None
        self.wanted.set()

    def _key(self, q: int) -> str:
        return f"{self._base}:{q}"

    # -- repair

    def look(self, repair: Callable[[Index, bool], None]) -> None:
        """See what is wrong and have it repaired; raises nothing of Redis."""
        try:
            info = self._redis.info()
            if info.get("maxmemory_policy", "noeviction") != "noeviction":
                self.refused = f"its maxmemory-policy is {info['maxmemory_policy']}: it may forget a part"
                self.up = False
                return
            self.refused = None
            self.up = True
            repair(self, self._current_mark() is None)
            if self.up:
                self._mark = self._current_mark()
        except redis.RedisError as error:
            self._lost(error)

    @contextlib.contextmanager
    def making(self) -> Iterator[bool]:
        """Make the index anew, if nobody else is at it; marked as whole at the end."""
        me = secrets.token_hex(8)
        key = f"{self._base}:making"
        ours = bool(self._redis.set(key, me, nx=True, ex=_REPAIR_SECONDS))
        yield ours
        if ours:
            self._finish(keys=[f"{self._base}:mark", key], args=[self._run + secrets.token_bytes(8), me])

    def add(self, places: Sequence[Place]) -> None:
        """As `tell`, while it is being repaired; raises."""
        with self._redis.pipeline(transaction=False) as sent:
            for q, members in _by_queue(places):
                sent.zadd(self._key(q), dict.fromkeys(members, 0))
            sent.expire(f"{self._base}:making", _REPAIR_SECONDS)
            sent.execute()

    # -- wake-ups

    def listen(self, stopped: threading.Event) -> None:
        """Call ``heard`` when somebody rings, until it is stopped or the connection is lost."""
        with self._redis.pubsub(ignore_subscribe_messages=True) as channel:
            channel.subscribe(f"{self._base}:bell")
            while not stopped.is_set():
                if channel.get_message(timeout=SECONDS / 2) is not None:
                    self._heard()

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
