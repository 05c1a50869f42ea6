"""Locks by name: of two commits that are about to look at the same, the second waits until the first has ended."""

from __future__ import annotations

from collections.abc import Iterable

from tampu.engines.sql.db import Blobs, Db


class Locks:
    """One commit's."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self._taken: set[bytes] = set()

    def take(self, names: Iterable[bytes]) -> None:
        """Nobody else looks at these until the end of the commit. One order for all of a call."""
        new = set(names) - self._taken
        if new:
            self._db.send("acquire_locks", Blobs(new))
            self._taken |= new

    def try_take(self, names: Iterable[bytes]) -> set[bytes]:
        """Those of these that nobody else has: nobody else looks at them until the end of the commit."""
        wanted = set(names)
        new = wanted - self._taken
        if new:
            self._taken |= {name for (name,) in self._db.rows("try_acquire_locks", Blobs(sorted(new)))}
        return wanted & self._taken


def queue_lock(tenant: str, name: str) -> bytes:
    return b"queue/%s/%s" % (tenant.encode(), name.encode())


def fair_lock(tenant: str, name: str) -> bytes:
    return b"fair/%s/%s" % (tenant.encode(), name.encode())


def key_lock(tenant: str, name: str, key: str) -> bytes:
    return b"key/%s/%s/%s" % (tenant.encode(), name.encode(), key.encode())


def group_lock(queue: tuple[str, str], group: bytes) -> bytes:
    """By the queue's tenant and name: it may not have a number yet."""
    return b"lane/%s/%s/%s" % (queue[0].encode(), queue[1].encode(), group)
