"""Tasks with ``execution="process"``: each runs in a child process, which can be killed at any time.

Each child has a thread in the worker, which sends it messages, carries out its requests, and notices its end.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from typing import Any

import msgspec

from tampu.model.errors import TampuError
from tampu.model.outcome import Ack, Release, Settlement
from tampu.worker import endings
from tampu.worker.current import LOST, Current
from tampu.worker.logs import formats
from tampu.worker.pools import child
from tampu.worker.pools.thread_pool import ThreadPool
from tampu.worker.prefetch import Prefetch
from tampu.worker.settle_queue import SettleQueue

log = logging.getLogger("tampu.worker")


class Child:
    """One process, with the worker's end of its pipes."""

    def __init__(self, memory: int | None) -> None:
        context = multiprocessing.get_context("spawn")  # forking a process with threads invites deadlocks
        self.pipe, child_end = context.Pipe()
        self._lifeline, end = context.Pipe()
        self.process = context.Process(
            target=child.main, args=(child_end, end, memory, formats.chosen), name="tampu-child", daemon=True
        )
        self.process.start()
        child_end.close()
        end.close()
        self.served = 0
        """Number of messages that it has finished."""
        self.began = False
        """True if it has started the task of its current message."""

    def kill(self) -> None:
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)

    def end(self) -> int | None:
        """End the process and return its exit code."""
        try:
            self.pipe.send(None)
        except OSError:
            self.kill()
        self.process.join(1.0)
        self.kill()
        self.process.join()
        self.pipe.close()
        self._lifeline.close()
        return self.process.exitcode


class ProcessPool(ThreadPool):
    """Runs tasks in child processes."""

    def __init__(
        self, settle_queue: SettleQueue, prefetch: Prefetch, most: int, *, memory: int | None, recycle: int | None
    ) -> None:
        super().__init__(settle_queue, prefetch, most, self._in_child, "child")
        self._memory = memory
        self._recycle = recycle
        self._spare: list[Child] = []
        self._busy: dict[str, Child] = {}
        self._lock = threading.Lock()

    def interrupt(self, work: Current) -> None:
        """Kill the child. The reason is in `Current._stop`."""
        with self._lock:
            found = self._busy.get(work.lease.receipt)
            if found is not None:
                found.kill()

    def drain(self) -> list[Current]:
        """Remove and return what has not been started. Children that are still starting are killed."""
        with self._lock:
            for one in self._busy.values():
                if self.halted and not one.began:
                    one.kill()
        return super().drain()

    def close(self) -> None:
        with self._lock:
            spare, self._spare = self._spare, []
        for one in spare:
            one.end()

    def _in_child(self, work: Current) -> Settlement | None:
        work._until = None  # the start of the child does not count
        while True:
            one = self._take(work)
            try:
                settlement, too_large = self._run_in(one, work)
            except (EOFError, OSError):
                if self.halted and not one.began and work._stop is None:
                    one.end()
                    return Release(work.lease)
                if work._stop is None and self._died_before_start(one):
                    continue
                return self._died(one, work)
            finally:
                with self._lock:
                    del self._busy[work.lease.receipt]
            break
        one.served += 1
        if too_large or (self._recycle is not None and one.served >= self._recycle):
            one.end()
        else:
            with self._lock:
                self._spare.append(one)
        return None if work._stop == LOST else settlement

    @staticmethod
    def _died_before_start(one: Child) -> bool:
        """True if the child died before it started this message: another child can run it."""
        if one.began or not one.served:
            return False
        log.warning("an idle child process ended: %s", _why(one.end()))
        return True

    def _take(self, work: Current) -> Child:
        with self._lock:
            one = self._spare.pop() if self._spare else None
        if one is None:
            one = Child(self._memory)
        with self._lock:
            one.began = False
            self._busy[work.lease.receipt] = one
            if work._stop is not None or self.halted:  # since the child was chosen
                one.kill()
        return one

    def _run_in(self, one: Child, work: Current) -> tuple[Settlement | None, bool]:
        """(settlement of the message, True if the child uses too much memory and must be replaced)"""
        app = work.task.app
        store = (app.opening()["url"], app.tenant, app.token)
        one.pipe.send((work.task.module, work.task.function.__qualname__, work.lease, *store))
        while True:
            kind, *rest = one.pipe.recv()
            if kind == child.MISSING:
                text, trace = rest
                error = f"a child process cannot import {work.task.name} from {work.task.module}: {text}"
                return endings.crashed(work, error, trace), False
            if kind == child.READY:
                if not self._may_begin(one, work):
                    one.pipe.send(False)
                    return endings.stopped(work) if work._stop is not None else Release(work.lease), False
                one.pipe.send(True)
                if work.task.settings.timeout is not None:
                    work._until = time.monotonic() + work.task.settings.timeout
                continue
            if kind == child.ENDED:
                settlement, noted, too_large = rest
                work._noted = work._noted or noted
                if isinstance(settlement, Ack) and settlement.result is not None:
                    settlement = Ack(work.lease, msgspec.Raw(settlement.result))
                return settlement, too_large
            one.pipe.send(self._handle_request(work, kind, rest))

    def _may_begin(self, one: Child, work: Current) -> bool:
        """False once the worker stops: a child that took long to start must not start its task then."""
        with self._lock:
            one.began = not self.halted and work._stop is None
            return one.began

    @staticmethod
    def _handle_request(work: Current, kind: str, rest: list[Any]) -> Any:
        """Carry out a method of the task store for a child."""
        task_store = work._task_store
        try:
            if kind == child.PROGRESS:
                work._note = rest[0]
                return task_store.progressed(work)
            work._noted = work._noted or kind == child.WRITE
            return getattr(task_store, kind)(work.lease, *rest)
        except TampuError as error:
            return error

    def _died(self, one: Child, work: Current) -> Settlement | None:
        code = one.end()
        if work._stop is not None:
            return endings.stopped(work)
        why = _why(code)
        log.warning("%s %s: the child process ended: %s", work.task.name, work.id, why)
        return endings.crashed(work, f"ChildDied: the process that ran {work.task.name} ended: {why}")


def _why(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"killed by {name}" + (", perhaps out of memory" if -code == signal.SIGKILL else "")
