"""Waiting for something to happen in the store: until the engine's bell rings, or for a while."""

from __future__ import annotations

import threading

import tampu


class Bell:
    """Rings when messages became ready, here or in another process. Other changes do not ring: wait no longer than it
    may take to notice them."""

    def __init__(self, q: tampu.Queue) -> None:
        self._rung = threading.Event()
        before = q._core.on_stir

        def rung() -> None:
            before()
            self._rung.set()

        q._core.on_stir = rung

    def wait(self, seconds: float) -> None:
        self._rung.wait(seconds)
        self._rung.clear()
