"""Waiting for changes in the store: until a wake-up of the engine, or a timeout."""

from __future__ import annotations

import threading
import time

import tampu
from tampu.broker import access
from tampu.cli.output import exit_if_unread

_UNREAD_SECONDS = 1.0
"""How long it may take to notice that the reader of the output is gone."""


class Wakeup:
    """Wakes when messages become ready, here or in another process. Other changes are noticed after the timeout."""

    def __init__(self, store: tampu.Store) -> None:
        self._woken = threading.Event()
        core = access.core(store)
        before = core.on_change

        def wake() -> None:
            before()
            self._woken.set()

        core.on_change = wake

    def wait(self, seconds: float) -> None:
        """Also exits if the reader of the output is gone."""
        until = time.monotonic() + seconds
        exit_if_unread()
        while not self._woken.wait(min(_UNREAD_SECONDS, until - time.monotonic())) and time.monotonic() < until:
            exit_if_unread()
        self._woken.clear()
