"""Forks: a child must not inherit SQLite connections.

SQLite remembers in memory which file locks its process holds. A forked child inherits that memory, but not the locks.
It would believe that it holds them, take none, and could lose what it writes. So every open store closes its
connections before a fork, and the parent connects again when it next needs them. If a file could not be closed (a
transaction is open, or the user has a connection of their own), the child refuses to open it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Any, Protocol

from tampu.model.errors import Unavailable

PATIENCE_SECONDS = 2.0
"""How long a fork waits for open transactions and reads."""
_HANDLES = "/dev/fd"
_MOST_HANDLES = 65_536


class Forked(Protocol):
    """A store with connections to a file."""

    def before_fork(self, give_up: float) -> bool:
        """Stop new work and close idle connections. True if `after_fork_parent` must be called."""
        ...

    def after_fork_parent(self) -> None: ...

    def after_fork_child(self) -> None:
        """In the child: leave the parent's connections alone."""
        ...


class _Paused(threading.local):
    def __init__(self) -> None:
        self.stores: list[Forked] = []


_open: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_paused = _Paused()
_inherited: set[tuple[int, int]] = set()


def watch(store: Forked) -> None:
    _open[id(store)] = store


def forget(store: Forked) -> None:
    _open.pop(id(store), None)


def refuse_inherited(path: str) -> None:
    """Raise if the file was open when this process was forked."""
    try:
        found = os.stat(path)  # noqa: PTH116 - the counterpart of os.fstat
    except OSError:
        return
    if (found.st_dev, found.st_ino) in _inherited:
        raise Unavailable(
            f"{path} was open in the parent process during the fork, in a transaction or by the user's own connection",
            hint="close it before forking, or start processes with spawn",
        )


def never_close(connection: Any) -> None:
    """Closing it would roll back, in memory shared with the parent, what the parent is about to commit."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _known() -> list[Forked]:
    return [store for store in (ref() for ref in _open.valuerefs()) if store is not None]


def _before() -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    for store in _known():
        if store.before_fork(give_up):
            _paused.stores.append(store)


def _after_in_parent() -> None:
    stores, _paused.stores = _paused.stores, []
    for store in stores:
        store.after_fork_parent()


def _after_in_child() -> None:
    for store in _known():
        store.after_fork_child()
    _open.clear()
    _paused.stores = []
    _inherited.update(_open_files())


def _open_files() -> Iterable[tuple[int, int]]:
    """All files, whoever opened them: the user's own connections leave SQLite's memory in the child too."""
    for handle in _handles():
        with contextlib.suppress(OSError):
            found = os.fstat(handle)
            if stat.S_ISREG(found.st_mode):
                yield found.st_dev, found.st_ino


def _handles() -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir(_HANDLES)]  # noqa: PTH208 - names of links
    except OSError:
        return range(min(os.sysconf("SC_OPEN_MAX"), _MOST_HANDLES))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
