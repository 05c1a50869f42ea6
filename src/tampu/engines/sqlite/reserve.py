"""Space for a full disk: a file beside the store that is emptied when the disk is full.

Leases can then be settled and messages removed, which makes room. What would fill the disk again is refused until there
is room: on the disk, where the reserve is made anew, or in pages of the file that are free.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from tampu.engines import port
from tampu.engines.transfer import Import
from tampu.model.errors import StorageFull

_MOST_BYTES = 4096
"""Bytes of a document or a new body that is stored on a full disk too, such as a key that is revoked."""


def full() -> StorageFull:
    return StorageFull(
        "the disk is full; nothing was stored", hint="free some space, or settle and purge messages, and call again"
    )


def stores_more(call: port.Call) -> bool:
    """True for calls that need lasting room."""
    if isinstance(call, port.Together):
        return any(map(stores_more, call.calls))
    if isinstance(call, port.PutDocument):
        return len(call.value) > _MOST_BYTES
    if isinstance(call, port.Free):
        return any(body is not None and len(body) > _MOST_BYTES for body in call.bodies)
    return isinstance(call, port.Publish | port.Load | Import)


class Reserve:
    """All processes see its state: a file of full size is kept, an empty one is spent, without a file there is none."""

    def __init__(self, path: str, size: int, free_pages: Callable[[], int]) -> None:
        self._path = Path(f"{path}-reserve")
        self._size = size
        self._free_pages = free_pages
        """Bytes of the store's file that are free."""

    @property
    def is_spent(self) -> bool:
        try:
            return os.stat(self._path).st_size == 0  # noqa: PTH116 - at every publish, and Path is slower
        except OSError:
            return False

    def make(self) -> None:
        """Take the space from the disk, if it is not taken yet and the disk has twice as much."""
        with contextlib.suppress(OSError):
            if (self._path.exists() and not self.is_spent) or free_space(self._path.parent) < 2 * self._size:
                return
            self._path.touch(0o600)
            with self._path.open("r+b") as file:
                try:
                    file.write(bytes(self._size))  # written and not only allocated: every file system has it then
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(0)

    def spend(self) -> bool:
        """Give the space back to the disk. True if there was some."""
        try:
            kept = self._path.stat().st_size > 0
            os.truncate(self._path, 0)
        except OSError:
            return False
        return kept

    def refuses(self) -> bool:
        """True while nothing more is stored. Makes the reserve anew if the disk has room again."""
        if not self.is_spent or self._free_pages() >= self._size:
            return False
        self.make()
        return self.is_spent


def free_space(folder: Path) -> int:
    """Bytes that are free on the disk."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize
