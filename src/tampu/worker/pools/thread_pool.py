"""Runs functions in threads: as few as keep up with the work, at most ``concurrency``.

A thread takes one message after another. Another thread starts only if the waiting messages would take longer than a
moment, or did. So no-ops do not pay for many threads, and slow functions get all of them.
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
from tampu.worker.pools.interrupt import interrupt, interrupt_self
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
        self._concurrency = concurrency
        self._run = run
        self._name = name
        self._inbox: deque[Current] = deque()
        self._work = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._average_seconds = 1.0
        """Average duration of a message; assumed slow until measured."""
        self._running_lock = threading.Lock()
        """Guards `running`. A plain lock, because an interrupt cannot leave it locked."""
        self.running: dict[int, Current] = {}
        """By thread."""
        self.halted = False
        """True: start nothing more."""

    def put(self, works: list[Current]) -> None:
        with self._work:
            self._inbox.extend(works)
            self._add_needed_threads()
            self._work.notify(min(self._idle, self._threads_needed()))

    def drain(self) -> list[Current]:
        """Remove and return what has not been started. Idle threads end if the pool is halted."""
        with self._work:
            left = list(self._inbox)
            self._inbox.clear()
            self._work.notify_all()
        return left

    @property
    def idle(self) -> bool:
        with self._work:
            return not self._inbox and not self.running

    def add_threads(self) -> None:
        """Called at intervals while there is work: start threads for messages that wait behind slow ones."""
        with self._work:
            if self._inbox and not self._idle and self._threads < self._concurrency:
                self._start_threads(min(len(self._inbox), self._concurrency - self._threads))

    def interrupt(self, work: Current) -> None:
        """Raise inside the function, as soon as it runs Python code again. The reason is in `Current._stop`."""
        with self._running_lock:
            thread = work._runs_in
            if thread is not None and self.running.get(thread) is work:
                interrupt(thread, endings.asked_to_stop(work))

    def _threads_needed(self) -> int:
        """Number of threads that finish the waiting messages within a moment, if that is possible."""
        return min(
            self._concurrency, 1 + int(len(self._inbox) * self._average_seconds / _MOMENT_SECONDS), len(self._inbox)
        )

    def _add_needed_threads(self) -> None:
        missing = self._threads_needed() - self._idle
        if missing > 0 and self._threads < self._concurrency and self._average_seconds > _MOMENT_SECONDS / 100:
            self._start_threads(min(missing, self._concurrency - self._threads))
        elif not self._threads:
            self._start_threads(1)

    def _start_threads(self, count: int) -> None:
        for _ in range(count):
            self._threads += 1
            threading.Thread(target=self._serve, name=f"tampu-{self._name}", daemon=True).start()

    def _serve(self) -> None:
        me = threading.get_ident()
        while True:
            with self._work:
                self._idle += 1
                got = self._work.wait_for(lambda: self.halted or bool(self._inbox), _IDLE_SECONDS)
                self._idle -= 1
                if self.halted or not got:
                    self._threads -= 1
                    return
                work = self._inbox.popleft()
                with self._running_lock:
                    work._runs_in = me
                    self.running[me] = work
                if self._prefetch.began is None:
                    self._prefetch.began = time.monotonic()
            self._run_message(work, me)

    def _run_message(self, work: Current, me: int) -> None:
        began = time.perf_counter()
        ended: list[Settlement | None] = []
        try:
            ended.append(self._run_or_stop(work))
            self._leave(work, me)
        except BaseException as error:  # an interrupt between two lines of ours; the next is seconds away
            if not ended:
                ended.append(endings.raised(work, error))
            self._leave(work, me)
        took = time.perf_counter() - began
        self._average_seconds += (took - self._average_seconds) * _WEIGHT
        self._prefetch.ran(1, took, took / self._concurrency)
        self._settle_queue.put(work, ended[0])

    def _run_or_stop(self, work: Current) -> Settlement | None:
        if work._stop is not None:
            return endings.stopped(work)
        if work.task.settings.timeout is not None:
            work._until = time.monotonic() + work.task.settings.timeout
        return self._run(work)

    def _leave(self, work: Current, me: int) -> None:
        """When this returns, nothing can interrupt this thread, and no interrupt of the function is pending."""
        while True:
            try:
                with self._running_lock:
                    self.running.pop(me, None)
                    work._runs_in = None
                while work._stop is not None:  # an interrupt may still be pending: ours replaces it
                    interrupt_self(_NothingPending)
                    time.sleep(0)
            except (TimedOut, Cancelled):
                continue
            except _NothingPending:
                pass
            return


class _NothingPending(BaseException):
    """Replaces a pending interrupt. Clearing it with NULL leaves Python 3.11 checking for it all the time, and
    in an endless loop under a debugger or a coverage tool."""
