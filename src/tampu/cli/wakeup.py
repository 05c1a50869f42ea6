"""Waiting for something to happen in the store: until the engine's bell rings, or for a while."""

from __future__ import annotations

import threading
import time

import tampu
from tampu.broker import access
from tampu.cli.output import leave_if_unread

_UNREAD_SECONDS = 1.0
"""How long it may take to notice that nobody reads what is waited for."""


class Wakeup:
    """Rings when messages became ready, here or in another process. Other changes do not ring: wait no longer than it
    may take to notice them."""

    def __init__(self, store: tampu.Store) -> None:
        self._rung = threading.Event()
        core = access.core(store)
        before = core.on_change

        def rung() -> None:
            before()
            self._rung.set()

        core.on_change = rung

    def wait(self, seconds: float) -> None:
        """Also ends the command when nobody reads its output any more."""
        until = time.monotonic() + seconds
        leave_if_unread()
        while not self._rung.wait(min(_UNREAD_SECONDS, until - time.monotonic())) and time.monotonic() < until:
            leave_if_unread()
        self._rung.clear()
