"""Forks: nothing of SQLite's may come along into the child.

SQLite keeps in the memory of a process which locks of a file the process has; the system gives a forked child none of
them. A child with such a memory believes that it holds locks, takes none, and what it writes can be lost. So before a
fork every open store closes its connections, and the parent connects again when it next needs them. A file that could
not be closed (a transaction was under way, the user has a connection of their own) the child refuses to open.
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
"""A fork waits so long for transactions and reads that are under way."""
_HANDLES = "/dev/fd"
_MOST_HANDLES = 65_536


class Forked(Protocol):
    """What has connections to a file."""

    def before_fork(self, give_up: float) -> bool:
        """Let nobody begin, and close what is not in use; whether `go_on` is owed."""
        ...

    def go_on(self) -> None: ...

    def after_fork_child(self) -> None:
        """In the child: leave alone what is the parent's."""
        ...


class _Stilled(threading.local):
    def __init__(self) -> None:
        self.stores: list[Forked] = []


_open: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_stilled = _Stilled()
_inherited: set[tuple[int, int]] = set()


def watch(store: Forked) -> None:
    _open[id(store)] = store


def forget(store: Forked) -> None:
    _open.pop(id(store), None)


def refuse_inherited(path: str) -> None:
    """Raise if the file was open when this process was forked off."""
    try:
        found = os.stat(path)  # noqa: PTH116 - as os.fstat answered
    except OSError:
        return
    if (found.st_dev, found.st_ino) in _inherited:
        raise Unavailable(
            f"{path} was open in the process this one was forked from, in the middle of a transaction or by a"
            " connection of its own",
            hint="close it before forking, or start processes with spawn",
        )


def keep_for_ever(connection: Any) -> None:
    """Closing it would roll back, in memory that is shared with the parent, what the parent is about to commit."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _known() -> list[Forked]:
    return [store for store in (ref() for ref in _open.valuerefs()) if store is not None]


def _before() -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    for store in _known():
        if store.before_fork(give_up):
            _stilled.stores.append(store)


def _after_in_parent() -> None:
    stores, _stilled.stores = _stilled.stores, []
    for store in stores:
        store.go_on()


def _after_in_child() -> None:
    for store in _known():
        store.after_fork_child()
    _open.clear()
    _stilled.stores = []
    _inherited.update(_open_files())


def _open_files() -> Iterable[tuple[int, int]]:
    """Whoever opened them: also the user's own connections bring SQLite's memory along."""
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
