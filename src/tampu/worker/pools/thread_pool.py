"""Plain functions in threads: as few as keep up with the work, at most as many as the concurrency allows.

A thread takes message after message. Another one is started only when what waits would take longer than a moment, or
did, so that no-ops do not pay for a crowd, and slow functions get their full width.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from tampu.model.outcome import Settlement
from tampu.worker import endings
from tampu.worker.current import Current
from tampu.worker.exceptions import Cancelled, TimedOut
from tampu.worker.pools.interrupt import instead, interrupt
from tampu.worker.prefetch import Prefetch
from tampu.worker.settle_queue import SettleQueue

_MOMENT_SECONDS = 0.002
_IDLE_SECONDS = 10.0
_WEIGHT = 0.2


class ThreadPool:
    def __init__(
        self,
        settle_queue: SettleQueue,
        prefetch: Prefetch,
        concurrency: int,
        run: Callable[[Current], Settlement | None],
        name: str,
    ) -> None:
        self._settle_queue = settle_queue
        self._prefetch = prefetch
        self._most = concurrency
        self._run_one = run
        self._name = name
        self._inbox: deque[Current] = deque()
        self._work = threading.Condition()
        self._thread_pool = 0
        self._idle = 0
        self._seconds = 1.0
        """Of one message, as measured; slow until known."""
        self._table = threading.Lock()
        """Of `running`: a plain lock, which an exception from outside can not leave locked."""
        self.running: dict[int, Current] = {}
        """By thread."""
        self.halted = False
        """Nothing more is begun."""

    def put(self, works: list[Current]) -> None:
        with self._work:
            self._inbox.extend(works)
            self._staff()
            self._work.notify(min(self._idle, self._wanted()))

    def drain(self) -> list[Current]:
        """Take back what has not been started; threads that are idle leave when the lane is halted."""
        with self._work:
            left = list(self._inbox)
            self._inbox.clear()
            self._work.notify_all()
        return left

    @property
    def idle(self) -> bool:
        with self._work:
            return not self._inbox and not self.running

    def look(self) -> None:
        """Called now and then while there is work: what waits behind something slow gets a thread."""
        with self._work:
            if self._inbox and not self._idle and self._thread_pool < self._most:
                self._hire(min(len(self._inbox), self._most - self._thread_pool))

    def interrupt(self, work: Current) -> None:
        """Raise inside the function, as soon as Python runs there again. Its `_stop` says why."""
        with self._table:
            thread = work._place
            if thread is not None and self.running.get(thread) is work:
                interrupt(thread, endings.asked_to_stop(work))

    def _wanted(self) -> int:
        """ThreadPool for what waits, so that it is done within a moment if that is possible."""
        return min(self._most, 1 + int(len(self._inbox) * self._seconds / _MOMENT_SECONDS), len(self._inbox))

    def _staff(self) -> None:
        missing = self._wanted() - self._idle
        if missing > 0 and self._thread_pool < self._most and self._seconds > _MOMENT_SECONDS / 100:
            self._hire(min(missing, self._most - self._thread_pool))
        elif not self._thread_pool:
            self._hire(1)

    def _hire(self, count: int) -> None:
        for _ in range(count):
            self._thread_pool += 1
            threading.Thread(target=self._serve, name=f"tampu-{self._name}", daemon=True).start()

    def _serve(self) -> None:
        me = threading.get_ident()
        while True:
            with self._work:
                self._idle += 1
                got = self._work.wait_for(lambda: self.halted or bool(self._inbox), _IDLE_SECONDS)
                self._idle -= 1
                if self.halted or not got:
                    self._thread_pool -= 1
                    return
                work = self._inbox.popleft()
                with self._table:
                    work._place = me
                    self.running[me] = work
                if self._prefetch.began is None:
                    self._prefetch.began = time.monotonic()
            self._one(work, me)

    def _one(self, work: Current, me: int) -> None:
        began = time.perf_counter()
        ended: list[Settlement | None] = []
        try:
            ended.append(self._ended(work))
            self._leave(work, me)
        except BaseException as error:  # an interruption that came between two lines of ours; the next is seconds away
            if not ended:
                ended.append(endings.raised(work, error))
            self._leave(work, me)
        took = time.perf_counter() - began
        self._seconds += (took - self._seconds) * _WEIGHT
        self._prefetch.ran(1, took, took / self._most)
        self._settle_queue.put(work, ended[0])

    def _ended(self, work: Current) -> Settlement | None:
        if work._stop is not None:
            return endings.stopped(work)
        if work.task.settings.timeout is not None:
            work._until = time.monotonic() + work.task.settings.timeout
        return self._run_one(work)

    def _leave(self, work: Current, me: int) -> None:
        """From here on nobody can interrupt this thread, and nothing that was meant for the function is pending."""
        while True:
            try:
                with self._table:
                    self.running.pop(me, None)
                    work._place = None
                while work._stop is not None:  # perhaps raised, and not yet here: ours takes its place
                    instead(_Swept)
                    time.sleep(0)
            except (TimedOut, Cancelled):
                continue
            except _Swept:
                pass
            return


class _Swept(BaseException):
    """Nothing is pending any more. Taking back what is pending, by raising nothing, leaves Python 3.11 looking for it
    at every turn, and in an endless loop where a debugger or a coverage tool traces."""
