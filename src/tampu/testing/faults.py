"""What a rehearsal does to tasks that run: lets them fail, take long or stall on demand; and notes what is raised."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from tampu.broker import access
from tampu.broker.store import Store
from tampu.maintenance.sweeper import Sweeper
from tampu.model.times import SECOND, Duration, duration
from tampu.testing.clock import FakeClock
from tampu.worker.current import TIMED_OUT, Current
from tampu.worker.endings import timeout_text
from tampu.worker.exceptions import TimedOut
from tampu.worker.middleware import Middleware
from tampu.worker.pools.stopper import Stopper


class Trick(msgspec.Struct):
    """What happens to the next runs of a task."""

    times: int
    error: BaseException | None = None
    slow: float = 0
    stall: float = 0


class Observer(Middleware):
    """The outermost middleware of a rehearsed app: it sees what the task and the others raise."""

    def __init__(self) -> None:
        self.raised: dict[str, BaseException] = {}
        """By receipt."""

    @contextlib.contextmanager
    def run(self, current: Current) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.raised[current.lease.receipt] = error
            raise


class Interference(Middleware):
    """The innermost middleware of a rehearsed app."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self._q = store
        self._clock = clock
        self.tricks: dict[str, list[Trick]] = {}

    def add(self, task: str, trick: Trick) -> None:
        self.tricks.setdefault(task, []).append(trick)

    @contextlib.contextmanager
    def run(self, current: Current) -> Iterator[None]:
        self._meddle(current)
        yield

    def _meddle(self, current: Current) -> None:
        waiting = self.tricks.get(current.task.name, [])
        if not waiting:
            return
        trick = waiting[0]
        trick.times -= 1
        if not trick.times:
            waiting.pop(0)
        if trick.stall:
            self._clock.advance(trick.stall)
            Sweeper(access.core(self._q)).sweep()  # the lease is over, as others see it
        if trick.slow:
            self._be_slow(current, trick.slow)
        if trick.error is not None:
            raise trick.error

    def _be_slow(self, current: Current, seconds: float) -> None:
        """As under a worker: the lease is kept, and the timeout ends it."""
        timeout = current.task.settings.timeout
        late = timeout is not None and seconds > timeout
        took = timeout if late and timeout is not None else seconds
        self._q.extend(current.lease, took + 60)
        self._clock.advance(took)
        if late:
            receipt = current.lease.receipt
            Stopper({receipt: current}).stop([receipt], TIMED_OUT)
            raise TimedOut(timeout_text(current))


def seconds(value: Duration, field: str) -> float:
    return duration(value, field, zero=False) / SECOND


def count(value: Any) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError("times is a whole number, at least 1")
    return value
