"""Tasks with ``execution="process"``: each runs in a child process, which can be killed at any time.

A thread of the worker stands beside each child: it hands it a message, serves its wishes, and sees it end.
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
from tampu.worker.pools import child
from tampu.worker.pools.thread_pool import ThreadPool
from tampu.worker.prefetch import Prefetch
from tampu.worker.process import logs
from tampu.worker.settle_queue import SettleQueue

log = logging.getLogger("tampu.worker")


class Child:
    """One process, with the worker's end of its pipes."""

    def __init__(self, memory: int | None) -> None:
        context = multiprocessing.get_context("spawn")  # forking a process with threads is asking for deadlocks
        self.pipe, theirs = context.Pipe()
        self._lifeline, end = context.Pipe()
        self.process = context.Process(
            target=child.main, args=(theirs, end, memory, logs.chosen), name="tampu-child", daemon=True
        )
        self.process.start()
        theirs.close()
        end.close()
        self.served = 0
        """Messages, of which it has ended all but the last."""
        self.began = False
        """It works on the last one."""

    def kill(self) -> None:
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)

    def end(self) -> int | None:
        """Let it go; its exit code."""
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
    """The lane of such tasks."""

    def __init__(
        self, settle_queue: SettleQueue, prefetch: Prefetch, most: int, *, memory: int | None, recycle: int | None
    ) -> None:
        super().__init__(settle_queue, prefetch, most, self._in_child, "child")
        self._memory = memory
        self._recycle = recycle
        self._spare: list[Child] = []
        self._busy: dict[str, Child] = {}
        self._process_pool = threading.Lock()

    def interrupt(self, work: Current) -> None:
        """Kill the child. Its `_stop` says why."""
        with self._process_pool:
            found = self._busy.get(work.lease.receipt)
            if found is not None:
                found.kill()

    def drain(self) -> list[Current]:
        """Take back what has not been started; children that only were to start are not waited for."""
        with self._process_pool:
            for one in self._busy.values():
                if self.halted and not one.began:
                    one.kill()
        return super().drain()

    def close(self) -> None:
        with self._process_pool:
            spare, self._spare = self._spare, []
        for one in spare:
            one.end()

    def _in_child(self, work: Current) -> Settlement | None:
        work._until = None  # starting the child does not count
        while True:
            one = self._take(work)
            try:
                settlement, full = self._attend(one, work)
            except (EOFError, OSError):
                if self.halted and not one.began and work._stop is None:
                    one.end()
                    return Release(work.lease)
                if work._stop is None and self._was_gone(one):
                    continue
                return self._died(one, work)
            finally:
                with self._process_pool:
                    del self._busy[work.lease.receipt]
            break
        one.served += 1
        if full or (self._recycle is not None and one.served >= self._recycle):
            one.end()
        else:
            with self._process_pool:
                self._spare.append(one)
        return None if work._stop == LOST else settlement

    @staticmethod
    def _was_gone(one: Child) -> bool:
        """It ended while it had nothing to do, or nearly: the message has not been begun, and is for another."""
        if one.began or not one.served:
            return False
        log.warning("a child process that waited for work is gone (%s)", _why(one.end()))
        return True

    def _take(self, work: Current) -> Child:
        with self._process_pool:
            one = self._spare.pop() if self._spare else None
        if one is None:
            one = Child(self._memory)
        with self._process_pool:
            one.began = False
            self._busy[work.lease.receipt] = one
            if work._stop is not None or self.halted:  # meanwhile
                one.kill()
        return one

    def _attend(self, one: Child, work: Current) -> tuple[Settlement | None, bool]:
        """What the child makes of the message; and whether it has grown too large to go on."""
        app = work.task.app
        place = (app.opening()["url"], app.tenant)
        one.pipe.send((work.task.module, work.task.function.__qualname__, work.lease, *place))
        while True:
            kind, *rest = one.pipe.recv()
            if kind == child.MISSING:
                text, trace = rest
                error = f"a child process can not import {work.task.name} of {work.task.module}: {text}"
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
                settlement, noted, full = rest
                work._noted = work._noted or noted
                if isinstance(settlement, Ack) and settlement.result is not None:
                    settlement = Ack(work.lease, msgspec.Raw(settlement.result))
                return settlement, full
            one.pipe.send(self._wish(work, kind, rest))

    def _may_begin(self, one: Child, work: Current) -> bool:
        """Decided here: nothing is begun after the worker was told to stop, however long a child takes to start."""
        with self._process_pool:
            one.began = not self.halted and work._stop is None
            return one.began

    @staticmethod
    def _wish(work: Current, kind: str, rest: list[Any]) -> Any:
        task_store, lease = work._task_store, work.lease
        try:
            if kind == child.READ:
                return task_store.read_note(lease)
            if kind == child.WRITE:
                work._noted = True
                return task_store.write_note(lease, rest[0])
            if kind == child.EXTEND:
                return task_store.extend(lease, rest[0])
            work._note = rest[0]
            return task_store.progressed(work)
        except TampuError as error:
            return error

    def _died(self, one: Child, work: Current) -> Settlement | None:
        code = one.end()
        if work._stop is not None:
            return endings.stopped(work)
        why = _why(code)
        log.warning("%s %s: its child process ended: %s", work.task.name, work.id, why)
        return endings.crashed(work, f"ChildDied: the process that ran {work.task.name} ended: {why}")


def _why(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"killed by {name}" + (", perhaps because memory ran out" if -code == signal.SIGKILL else "")
