"""Locks by name, held until the end of a commit. A commit locks what it looks up before it decides."""

from __future__ import annotations

from collections.abc import Iterable

from tampu.engines.sql.db import Blobs, Db


class Locks:
    """The locks of one commit."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self._taken: set[bytes] = set()

    def take(self, names: Iterable[bytes]) -> None:
        """Wait for these locks. One statement takes them in one order, so that commits cannot deadlock."""
        new = set(names) - self._taken
        if new:
            self._db.send("acquire_locks", Blobs(new))
            self._taken |= new

    def try_take(self, names: Iterable[bytes]) -> set[bytes]:
        """Lock those that nobody else has, without waiting; returns the ones that this commit has now."""
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
    """Uses the tenant and name of the queue, because a new queue has no number yet."""
    tenant, name = queue
    return b"lane/%s/%s/%s" % (tenant.encode(), name.encode(), group)
