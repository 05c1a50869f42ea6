"""Raises an exception inside another thread, but not while that thread is inside the store.

Callers of a store share commits, and one thread may run a commit for all of them. Such a thread is not interrupted: it
raises the exception itself when it leaves the store.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from tampu.broker.commit_queue.coalescer import in_commit
from tampu.broker.core import StepRunner, WaitForEnd, WaitForMessages

_set_async_exc: Any = ctypes.pythonapi.PyThreadState_SetAsyncExc
_in_store: set[int] = set()
"""Threads inside a call of a store; `in_commit` has those that run a commit."""
_pending: dict[int, type[BaseException]] = {}
"""The exception that each thread raises when it leaves the store."""


def interrupt(thread: int, kind: type[BaseException]) -> None:
    """Raise an exception in a thread: as soon as it runs Python code, or when it leaves the store."""
    number, given = ctypes.c_ulong(thread), ctypes.py_object(kind)
    # No other thread runs between this check and the call: Python switches threads only at calls and backward jumps.
    # So a thread that is not in a commit yet gets the exception before it can enter one.
    if thread in _in_store or thread in in_commit:
        _pending[thread] = kind
    else:
        _set_async_exc(number, given)


def interrupt_self(kind: type[BaseException]) -> None:
    """Raise in this thread soon, and replace any exception that is still pending here."""
    _pending.pop(threading.get_ident(), None)
    _set_async_exc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(kind))


def defer_interrupts(core: StepRunner) -> None:
    """Hold back interrupts of threads that are inside this store until they leave it."""
    if not isinstance(core.do, _DeferInterrupts):
        core.do = _DeferInterrupts(core.do)  # type: ignore[method-assign]  # only of this store, and only in workers


class _DeferInterrupts:
    """Wraps `StepRunner.do`. Reads and requests are protected too: an interrupt would break their connection."""

    def __init__(self, do: Callable[[Any], Any]) -> None:
        self._do = do

    def __call__(self, step: Any) -> Any:
        if isinstance(step, WaitForMessages | WaitForEnd):  # may take hours, and no other caller depends on it
            return self._do(step)
        thread = threading.get_ident()
        _in_store.add(thread)
        try:
            return self._do(step)
        finally:
            _in_store.discard(thread)
            if _pending and (kind := _pending.pop(thread, None)) is not None:
                raise kind
