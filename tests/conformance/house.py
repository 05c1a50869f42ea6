"""What every conformance test is given: one store of some engine, with a clock that only moves when told to.

Nothing here or in the tests knows which engine it is. To run the suite on another engine, add a `Kit` in conftest.py.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

import tampu
from tampu.broker.core import Core
from tampu.broker.queue import Queue
from tampu.engines.port import Sweep, Swept
from tampu.keepers.trimmer import Trimmer
from tampu.model.times import SECOND, moment

WEEK = 7 * 86_400
START = 1_767_225_600 * SECOND  # the first day of 2026


class FakeClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self._now = START

    def now(self) -> int:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += round(seconds * SECOND)

    @property
    def time(self) -> datetime:
        return moment(self._now)


class Kit(msgspec.Struct, frozen=True):
    """An engine that takes part."""

    name: str
    url: Callable[[Path], str]
    private: bool = False
    """The store lives inside what opened it: it can not be opened twice, nor again."""
    transactions: bool = False
    """Users' own writes and ours can be one transaction."""


class House:
    """One store."""

    def __init__(self, kit: Kit, folder: Path) -> None:
        self.clock = FakeClock()
        self.url = kit.url(folder)
        self.private = kit.private
        self._cores: dict[bool, Core] = {}
        self._opened: list[Queue] = []

    def open(self, *, tenant: str = "default", keepers: bool = False, live: bool = False) -> Queue:
        """A queue on the store; ``live`` has the real clock instead of the fake one."""
        if self.private and live in self._cores:
            return Queue(self._cores[live], tenant, on_close=lambda: None)
        queue = tampu.open(self.url, tenant=tenant, keepers=keepers, clock=None if live else self.clock)
        self._opened.append(queue)
        self._cores[live] = queue._core
        return queue

    def live(self, *, tenant: str = "default") -> Queue:
        """A queue as users have it: real clock, keepers running."""
        return self.open(tenant=tenant, keepers=True, live=True)

    def reopen(self, *, tenant: str = "default") -> Queue:
        """Close the store and open it again (a private one is looked at afresh)."""
        if not self.private:
            self.close()
        return self.open(tenant=tenant)

    def _core(self) -> Core:
        if not self._cores:
            self.open()
        return self._cores[False]

    def sweep(self) -> int:
        """Let time have its effect: delays, leases that ran out, expiry. How many messages moved."""
        moved = 0
        while True:
            swept: Swept = self._core().coalescer.submit(Sweep(1000))
            moved += swept.moved
            if not swept.moved:
                return moved

    def trim(self, *, journal: float = WEEK) -> int:
        """Let retention have its effect, as the keeper does. How much was removed."""
        trimmer = Trimmer(self._core(), round(journal * SECOND))
        removed = 0
        while True:
            step = trimmer.step()
            removed += step
            if not step:
                return removed

    def picture(self, *queues: Queue) -> list[Any]:
        """All there is to see of some tenants, to tell whether anything changed."""
        return [
            (
                q.stats(),
                q.journal(limit=100_000).transitions,
                {name: (q.queues.get(name, inherited=False), list(q.messages(name, limit=10_000)))
                 for name in q.queues.list()},
            )
            for q in queues
        ]  # fmt: skip

    @contextlib.contextmanager
    def unchanged(self, *queues: Queue) -> Iterator[None]:
        """What happens inside must leave no trace."""
        before = self.picture(*queues)
        yield
        assert self.picture(*queues) == before

    def close(self) -> None:
        for queue in self._opened:
            queue.close()
        self._opened.clear()
        self._cores.clear()


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait for something that another thread or process brings about."""
    pause, give_up = threading.Event(), time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "waited too long"
        pause.wait(0.002)


def waits(q: Queue, callers: int = 1) -> bool:
    """Are so many callers asleep in claim?"""
    return len({id(waiter) for line in list(q._core.waiting._waiters.values()) for waiter in list(line)}) >= callers


def verbs(q: Queue, *ids: str) -> list[str]:
    """The verbs of the journal in order, of all messages or of some."""
    return [t.verb for t in q.journal(limit=100_000).transitions if not ids or t.id in ids]


def counts(q: Queue, queue: str) -> dict[str, int]:
    """The counts that are not zero."""
    return {str(state): n for state, n in q.stats(queue).counts.items() if n}


def payloads(leases: Any) -> list[Any]:
    return [lease.payload for lease in leases]
