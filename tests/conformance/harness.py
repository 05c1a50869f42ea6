"""What every conformance test is given: one store of some engine, with a clock that only moves when the test moves it.

Nothing here or in the tests knows which engine it is. To run the suite on another engine, add a `Kit` in conftest.py.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tampu
from tampu.broker import access
from tampu.broker.core import Core
from tampu.broker.store import Store
from tampu.engines.port import Sweep, Swept
from tampu.maintenance.dead import Replayer
from tampu.maintenance.follower import Follower
from tampu.maintenance.scheduler import Scheduler
from tampu.maintenance.tasks import Reorderer, Trimmer
from tampu.maintenance.timers import Timers
from tampu.model.errors import TampuError
from tampu.model.times import SECOND
from tampu.testing import FakeClock as FakeClock  # noqa: PLC0414 - the tests have it from here

WEEK = 7 * 86_400


class Kit(msgspec.Struct, frozen=True):
    """An engine that takes part."""

    name: str
    url: Callable[[Path], str]
    private: bool = False
    """The store lives inside what opened it: it cannot be opened twice, nor again."""
    transactions: bool = False
    """Users' own writes and ours can be one transaction."""
    served: bool = False
    """The store is behind a server, which runs in this process."""


class Harness:
    """One store."""

    def __init__(self, kit: Kit, folder: Path) -> None:
        self.clock = FakeClock()
        self.url = kit.url(folder)
        self.name = kit.name
        self.private = kit.private
        self._cores: dict[bool, Core] = {}
        self._opened: list[Store] = []

    def opening(self, *, live: bool = False) -> dict[str, Any]:
        """What `tampu.open` and `tampu.open_async` are given; ``live`` is as users have it."""
        return {"url": self.url} if live else {"url": self.url, "maintenance": False, "clock": self.clock}

    def open(self, *, tenant: str = "default", maintenance: bool = False, live: bool = False) -> Store:
        """A queue on the store; ``live`` has the real clock instead of the fake one."""
        if self.private and live in self._cores:
            return Store(self._cores[live], tenant, on_close=lambda: None)
        queue = tampu.open(self.url, tenant=tenant, maintenance=maintenance, clock=None if live else self.clock)
        self._opened.append(queue)
        self._cores[live] = access.core(queue)
        return queue

    def live(self, *, tenant: str = "default") -> Store:
        """A queue as users have it: real clock, maintenance running."""
        return self.open(tenant=tenant, maintenance=True, live=True)

    def reopen(self, *, tenant: str = "default") -> Store:
        """Close the store and open it again (a private one is looked at afresh)."""
        if not self.private:
            self.close()
        return self.open(tenant=tenant)

    def core(self) -> Core:
        if not self._cores:
            self.open()
        return self._cores[False]

    def sweep(self) -> int:
        """Let time have its effect: delays, leases that ran out, expiry. How many messages moved."""
        moved = 0
        while True:
            swept: Swept = self.core().coalescer.submit(Sweep(1000))
            moved += swept.moved
            if not swept.moved:
                return moved

    def trim(self, *, journal: float = WEEK) -> int:
        """Let retention have its effect, as maintenance does. How much was removed."""
        trimmer = Trimmer(self.core(), round(journal * SECOND))
        removed = 0
        while True:
            step = trimmer.step()
            removed += step
            if not step:
                return removed

    def rank(self) -> None:
        """Let maintenance finish what a change of an ordering began."""
        Reorderer(self.core()).rank()

    def fire(self) -> int | None:
        """Let maintenance fire what is due of the schedules; when it has something to do next."""
        return Scheduler(self.core()).fire()

    def replay_dead(self) -> int | None:
        """Let maintenance carry on replays of dead letters, as a new leader does; when it has something to do next."""
        replayer = Replayer(self.core())
        while (due := replayer.replay()) is not None and due <= self.core().engine.now():
            pass
        return due

    def follow(self) -> None:
        """Let the handlers see all that is in the journal, and what comes of that, as a new leader does."""
        follower = Follower(self.core())
        while follower.turn() != 0:
            pass

    def ring(self) -> None:
        """Let maintenance handle the timers that are due, as a new leader does."""
        Timers(self.core()).handle()

    def picture(self, *queues: Store) -> list[Any]:
        """All there is to see of some tenants, to tell whether anything changed."""
        return [
            (
                store.stats(),
                store.journal(limit=100_000).transitions,
                {name: (store.queues.get(name, inherited=False), list(store.messages(name, limit=10_000)))
                 for name in store.queues.list()},
            )
            for store in queues
        ]  # fmt: skip

    @contextlib.contextmanager
    def unchanged(self, *queues: Store) -> Iterator[None]:
        """What happens inside must leave no trace."""
        before = self.picture(*queues)
        yield
        assert self.picture(*queues) == before

    def close(self) -> None:
        for queue in self._opened:
            queue.close()
        self._opened.clear()
        self._cores.clear()


class Refusals:
    """Calls that must be refused. At the end, all of them together must have left no trace.

    To look after each call would take most of the time of these tests.
    """

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._before: tuple[Store, list[Any]] | None = None

    def __call__(self, store: Store, codes: str, call: Callable[..., Any], field: str | None = None) -> None:
        """The call is refused with one of the codes, and for this field."""
        if self._before is None:
            self._before = store, self._harness.picture(store)
        with pytest.raises(TampuError) as refused:
            call()
        assert refused.value.code in codes.split()
        assert str(refused.value)
        assert field is None or refused.value.field == field

    def check(self) -> None:
        """Nothing has changed since the first of them."""
        if self._before is not None:
            store, before = self._before
            self._before = None
            assert self._harness.picture(store) == before


def until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait for something that another thread or process brings about.

    Looks often at first, then less and less: who is waited for needs the processor, and so does everybody else.
    """
    pause, give_up, interval = threading.Event(), time.monotonic() + seconds, 0.002
    while not condition():
        assert time.monotonic() < give_up, "waited too long"
        pause.wait(interval)
        interval = min(interval * 1.25, 0.05)


SERVED: dict[str, Core] = {}
"""What is behind the servers of this process, by their urls."""


def inside(store: Store) -> Core:
    """What is under a queue; of a remote one, under its server."""
    remote = getattr(access.core(store), "url", None)
    return access.core(store) if remote is None else SERVED[remote]


def waits(store: Store, callers: int = 1) -> bool:
    """Are so many callers asleep in claim?"""
    lines = list(inside(store).waiting._waiters.values())
    return len({id(waiter) for line in lines for waiter in list(line)}) >= callers


def verbs(store: Store, *ids: str) -> list[str]:
    """The verbs of the journal in order, of all messages or of some."""
    return [t.verb for t in store.journal(limit=100_000).transitions if not ids or t.id in ids]


def counts(store: Store, queue: str) -> dict[str, int]:
    """The counts that are not zero."""
    return {str(state): n for state, n in store.stats(queue).counts.items() if n}


def group(name: str | None, *payloads: object) -> list[tampu.NewMessage]:
    """Messages of one group."""
    return [tampu.NewMessage(payload, group=name) for payload in payloads]


def payloads(leases: Any) -> list[Any]:
    return [lease.payload for lease in leases]


ENDS = ("ack", "reject", "last nack", "run out", "cancel", "expire", "purge")
"""How a message may end."""


def end_first(store: Store, harness: Harness, first: tampu.Message, way: str) -> None:
    """End the first message of the queue ``jobs``, which has one attempt and expires after a minute."""
    if way == "cancel":
        store.cancel(first.id)
    elif way == "purge":
        store.purge("jobs", state="ready")
    elif way == "expire":
        harness.clock.advance(60)
        harness.sweep()
    else:
        lease = store.claim("jobs", lease=30)[0]
        if way == "run out":
            harness.clock.advance(30)
            harness.sweep()
        else:
            getattr(store, way.rsplit(maxsplit=1)[-1])(lease)
