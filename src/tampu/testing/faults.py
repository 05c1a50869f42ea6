"""Middleware of a rehearsal: makes tasks fail, take long or stall on demand, and records what they raise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from tampu.broker import access
from tampu.broker.store import Store
from tampu.maintenance.tasks import Sweeper
from tampu.model.times import SECOND, Duration, duration
from tampu.testing.clock import FakeClock
from tampu.worker.current import TIMED_OUT, Current
from tampu.worker.endings import timeout_text
from tampu.worker.exceptions import TimedOut
from tampu.worker.pools.stopper import Stopper
from tampu.worker.tasks import Middleware


class Fault(msgspec.Struct):
    """A fault for the next runs of a task."""

    times: int
    error: BaseException | None = None
    slow: float = 0
    stall: float = 0


class Observer(Middleware):
    """The outermost middleware of a rehearsed app: records what the task and other middleware raise."""

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


class FaultInjector(Middleware):
    """The innermost middleware of a rehearsed app: injects the faults."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self._store = store
        self._clock = clock
        self.faults: dict[str, list[Fault]] = {}

    def add(self, task: str, fault: Fault) -> None:
        self.faults.setdefault(task, []).append(fault)

    @contextlib.contextmanager
    def run(self, current: Current) -> Iterator[None]:
        self._inject(current)
        yield

    def _inject(self, current: Current) -> None:
        waiting = self.faults.get(current.task.name, [])
        if not waiting:
            return
        fault = waiting[0]
        fault.times -= 1
        if not fault.times:
            waiting.pop(0)
        if fault.stall:
            self._clock.advance(fault.stall)
            Sweeper(access.core(self._store)).sweep()  # the lease has expired
        if fault.slow:
            self._be_slow(current, fault.slow)
        if fault.error is not None:
            raise fault.error

    def _be_slow(self, current: Current, seconds: float) -> None:
        """Like under a worker: the lease is extended, and the timeout ends the task."""
        timeout = current.task.settings.timeout
        late = timeout is not None and seconds > timeout
        took = timeout if late and timeout is not None else seconds
        self._store.extend(current.lease, took + 60)
        self._clock.advance(took)
        if late:
            receipt = current.lease.receipt
            Stopper({receipt: current}).stop([receipt], TIMED_OUT)
            raise TimedOut(timeout_text(current))


def seconds(value: Duration, field: str) -> float:
    return duration(value, field, zero=False) / SECOND


def count(value: Any) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError("times must be a whole number, at least 1")
    return value
