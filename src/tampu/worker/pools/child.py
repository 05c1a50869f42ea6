"""The child process: runs one message after another, until the worker ends or tells it to end."""

from __future__ import annotations

import importlib
import operator
import os
import signal
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.model.errors import TampuError
from tampu.model.message import Lease
from tampu.model.outcome import Ack
from tampu.model.times import Duration
from tampu.worker.current import Current
from tampu.worker.logs import formats
from tampu.worker.pools import call_task
from tampu.worker.tasks import Task

READY, ENDED, MISSING = "ready", "ended", "missing"
READ, WRITE, EXTEND, PROGRESS = "read_note", "write_note", "extend", "progress"
_MEGABYTE = 1 << 20


class PipeTaskStore:
    """Notes, progress and lease extensions of tasks in a child: the worker carries them out."""

    def __init__(self, worker: Connection) -> None:
        self._worker = worker
        self._lock = threading.Lock()

    def _request(self, *request: Any) -> Any:
        with self._lock:
            self._worker.send(request)
            answer = self._worker.recv()
        if isinstance(answer, TampuError):
            raise answer
        return answer

    def read_note(self, _lease: Lease) -> Any:
        return self._request(READ)

    def write_note(self, _lease: Lease, note: Any) -> None:
        self._request(WRITE, note)

    def extend(self, _lease: Lease, by: Duration | None) -> None:
        self._request(EXTEND, by)

    def progressed(self, work: Current) -> None:
        work._noted = True
        self._request(PROGRESS, work._note)


def find(module: str, name: str) -> Task[Any, Any]:
    """Import the task in this process."""
    if "<locals>" in name:
        raise TypeError(f"a task with execution='process' must be defined at module level; {name} is not")
    found = operator.attrgetter(name)(importlib.import_module(module))
    if not isinstance(found, Task):
        raise TypeError(f"{module}.{name} is not a task")
    return found


def _load(request: Any, task_store: PipeTaskStore) -> Current:
    """Import the task of a request; raises whatever its module raises."""
    module, name, lease, *store = request
    task = find(module, name)
    task.app.use_store_at(*store)
    return Current(lease, task, task_store)


def main(worker: Connection, lifeline: Connection, memory: int | None, lines: formats.Format | None) -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM):  # the worker decides when this process ends
        signal.signal(ignored, signal.SIG_IGN)
    threading.Thread(target=_exit_with_worker, args=(lifeline,), daemon=True).start()
    if lines is not None:
        formats.set_up(json=lines.json, level=lines.level)
    if memory is not None:
        _limit(memory * _MEGABYTE)
    task_store = PipeTaskStore(worker)
    while True:
        try:
            request = worker.recv()
        except EOFError:
            return
        if request is None:
            return
        try:
            work = _load(request, task_store)
        except (Exception, SystemExit) as error:  # the next message may need another module
            worker.send((MISSING, *validate.error_text(error)))
            continue
        worker.send((READY,))
        if not worker.recv():
            continue  # the worker was stopped meanwhile
        if work.task.settings.timeout is not None:
            work._until = time.monotonic() + work.task.settings.timeout
        settlement = call_task.run(work)
        if isinstance(settlement, Ack) and isinstance(settlement.result, msgspec.Raw):
            settlement = Ack(settlement.lease, bytes(settlement.result))
        worker.send((ENDED, settlement, work._noted, memory is not None and resident() > memory * _MEGABYTE))


def _exit_with_worker(lifeline: Connection) -> None:
    """Exit when the worker is killed: a child must not run on without it."""
    try:
        lifeline.recv()
    except (EOFError, OSError):
        os._exit(1)


def _limit(memory: int) -> None:
    """Make allocations above this fail: a `MemoryError` in the task, instead of a machine that swaps."""
    try:
        import resource
    except ImportError:  # not on this system; resident memory is still checked after each task
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def resident() -> int:
    """Resident memory in bytes; 0 if the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - read after every message
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
