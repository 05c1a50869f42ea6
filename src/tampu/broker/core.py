"""What everything on one open store shares: the engine, its coalescer, the settings, and who waits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from tampu.broker.coalescer import Coalescer
from tampu.broker.settings import SettingsCache
from tampu.broker.waiting import Waiter, Waiting
from tampu.engines.port import Call, Engine
from tampu.model.errors import TampuError, Unavailable
from tampu.model.message import State

R = TypeVar("R")
log = logging.getLogger("tampu")


class Look:
    """A step that reads: what to ask of the engine."""

    __slots__ = ("ask",)

    def __init__(self, ask: Callable[[Engine], Any]) -> None:
        self.ask = ask


class Pause:
    """A step that waits for messages in queues, at most so long."""

    __slots__ = ("empty", "queues", "seconds")

    def __init__(self, queues: list[tuple[str, str]], seconds: float, empty: list[tuple[str, str]]) -> None:
        self.queues = queues
        self.seconds = seconds
        self.empty = empty
        """Those that the last claim found empty. In the others (paused, at their limit) messages may well be ready."""


Step = Call | Look | Pause
Steps = Generator[Step, Any, R]
"""A verb: yields what is to be done and is sent the answer, so that threads and tasks share one definition."""


class Core:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.coalescer = Coalescer(engine)
        self.settings = SettingsCache(engine)
        self.waiting = Waiting()
        self.on_due: Callable[[int], None] = lambda _at: None
        self.on_stir: Callable[[], None] = lambda: None
        self.watched = False
        """Somebody looks after waiters now and then, so they need not look themselves."""
        self.closed = False
        self.in_transaction: set[int] = set()
        """Threads inside a transaction of the engine's own connection."""
        engine.listen(self)

    # -- Listener

    def ready(self, queues: Mapping[tuple[str, str], int]) -> None:
        self.waiting.wake(queues)

    def due(self, at_us: int) -> None:
        self.on_due(at_us)

    def stirred(self) -> bool:
        try:
            self.look()
        except TampuError as error:  # the bell must go on ringing
            log.warning("could not look for messages: %s", error)
        self.on_stir()
        return self.waiting.anybody

    def look(self) -> None:
        """Wake those whose queues have messages, whoever published them."""
        self.waiting.look(self._ready_count)

    def came_meanwhile(self, pause: Pause) -> bool:
        """What came between the last claim and joining those who wait must not be slept through."""
        return any(self._ready_count(queue) for queue in pause.empty)

    def _ready_count(self, queue: tuple[str, str]) -> int:
        if self.closed:
            return 0
        try:
            return sum(stats.counts.get(State.READY, 0) for stats in self.engine.stats(*queue))
        except Unavailable:
            if self.closed:  # meanwhile
                return 0
            raise

    # -- carrying out steps

    def do(self, step: Step) -> Any:
        if isinstance(step, Look):
            return step.ask(self.engine)
        if isinstance(step, Pause):
            waiter = Waiter(step.queues, None)
            self.waiting.join(waiter)
            try:
                if not self.came_meanwhile(step):
                    waiter.wait(step.seconds)
            finally:
                self.waiting.leave(waiter)
            return None
        return self.coalescer.submit(step)

    def drive(self, steps: Steps[R], do: Callable[[Step], Any] | None = None) -> R:
        """Carry out a verb from a thread."""
        do = do or self.do
        try:
            step = next(steps)
            while True:
                try:
                    answer = do(step)
                except TampuError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the generator's own return type
