"""Open stores, shared by the connections of a process: opening one is dear, and Celery has many connections."""

from __future__ import annotations

import atexit
import os
import threading

import tampu

_lock = threading.Lock()
_open: dict[tuple[int, str], tuple[tampu.Store, int]] = {}
"""By (process, url): the store, and how many use it. A process that was forked opens its own."""


def acquire(url: str) -> tampu.Store:
    """The store of this url; `release` it when it is not needed any more."""
    key = os.getpid(), url
    with _lock:
        store, users = _open.get(key) or (tampu.open(url), 0)
        _open[key] = store, users + 1
        return store


def release(url: str) -> None:
    """Close the store after its last user."""
    key = os.getpid(), url
    with _lock:
        known = _open.pop(key, None)
        if known is None:
            return
        store, users = known
        if users > 1:
            _open[key] = store, users - 1
            return
    store.close()


def close_all() -> None:
    """Close the stores of this process, whoever uses them: at its end, and after tests."""
    with _lock:
        mine = [_open.pop(key)[0] for key in list(_open) if key[0] == os.getpid()]
    for store in mine:
        store.close()


def _after_fork() -> None:
    """The parent's thread may have held the lock."""
    global _lock  # noqa: PLW0603 - a new one for this process
    _lock = threading.Lock()


atexit.register(close_all)
os.register_at_fork(after_in_child=_after_fork)
