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
            self._db.send("locks", Blobs(new))
            self._taken |= new


def queue_lock(tenant: str, name: str) -> bytes:
    return b"queue/%s/%s" % (tenant.encode(), name.encode())


def fair_lock(tenant: str, name: str) -> bytes:
    return b"fair/%s/%s" % (tenant.encode(), name.encode())


def lane_lock(queue: tuple[str, str], lane: bytes) -> bytes:
    """By the queue's tenant and name: it may not have a number yet."""
    return b"lane/%s/%s/%s" % (queue[0].encode(), queue[1].encode(), lane)
