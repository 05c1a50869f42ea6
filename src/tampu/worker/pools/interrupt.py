"""Raising an exception inside a thread, where that harms nobody else.

The callers of a store share commits, and a thread may be carrying one out for all of them. There it is not interrupted:
it raises the exception itself when it leaves the store.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from tampu.broker.commit_queue.coalescer import in_commit
from tampu.broker.core import StepRunner, WaitForEnd, WaitForMessages

_set_async_exc: Any = ctypes.pythonapi.PyThreadState_SetAsyncExc
_busy: set[int] = set()
"""Threads that ask a store; `in_commit` has those of them that are in a commit."""
_asked: dict[int, type[BaseException]] = {}
"""What threads that are inside the store are to raise when they leave it."""


def interrupt(thread: int, kind: type[BaseException]) -> None:
    """Have an exception raised in a thread: as soon as Python runs there, or when it leaves the store."""
    number, given = ctypes.c_ulong(thread), ctypes.py_object(kind)
    # From here on no other thread runs until it is done: no call and no jump back lies in between, which is where the
    # interpreter changes hands. So who is not in a commit yet has the exception before it can enter one.
    if thread in _busy or thread in in_commit:
        _asked[thread] = kind
    else:
        _set_async_exc(number, given)


def instead(kind: type[BaseException]) -> None:
    """Raise in this thread soon, in place of anything that somebody else wanted to be raised here."""
    _asked.pop(threading.get_ident(), None)
    _set_async_exc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(kind))


def heed(core: StepRunner) -> None:
    """Have threads that leave this store raise what they were asked to."""
    if not isinstance(core.do, _Heeding):
        core.do = _Heeding(core.do)  # type: ignore[method-assign]  # of this store only, and only where tasks run


class _Heeding:
    """Carries out steps of verbs. A question or a request is not broken off either: its connection would be spoilt."""

    def __init__(self, do: Callable[[Any], Any]) -> None:
        self._do = do

    def __call__(self, step: Any) -> Any:
        if isinstance(step, WaitForMessages | WaitForEnd):  # may take hours, and is nobody else's
            return self._do(step)
        thread = threading.get_ident()
        _busy.add(thread)
        try:
            return self._do(step)
        finally:
            _busy.discard(thread)
            if _asked and (kind := _asked.pop(thread, None)) is not None:
                raise kind
