"""`tampu.current()`: what a running task may know and do about its message."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

from tampu.model.errors import InvalidState
from tampu.model.message import Lease, Message
from tampu.model.times import Duration

if TYPE_CHECKING:
    from tampu.worker.tasks import Task

_current: contextvars.ContextVar[Current] = contextvars.ContextVar("tampu-current")
log = logging.getLogger("tampu.task")

CANCELLED = "cancelled"
LOST = "lease lost"
TIMED_OUT = "timed out"
STOPPING = "the worker stops"


class TaskStore(Protocol):
    """Where a running task's wishes go: straight to the store, or from a child to its worker."""

    def read_note(self, lease: Lease) -> Any: ...
    def write_note(self, lease: Lease, note: Any) -> None: ...
    def extend(self, lease: Lease, by: Duration | None) -> None: ...
    def progressed(self, work: Current) -> None: ...


class Note:
    """What is kept of a message while it is worked on, by the keys of a mapping."""

    CURSOR = "cursor"
    PROGRESS = "progress"
    TOLD = "note"


class Checkpoint:
    """A cursor that outlives the attempt: the next one goes on from there. It is gone when the message has ended."""

    __slots__ = ("_work",)

    def __init__(self, work: Current) -> None:
        self._work = work

    def get(self, default: Any = None) -> Any:
        """What was set last, in this attempt or an earlier one."""
        return self._work._known_note().get(Note.CURSOR, default)

    def set(self, cursor: Any) -> None:
        """Keep a JSON value. Returns when it is stored; raises `LeaseLost` when somebody else has the message now."""
        work = self._work
        work._known_note()[Note.CURSOR] = cursor
        work._save_note()

    async def get_async(self, default: Any = None) -> Any:
        return await asyncio.to_thread(self.get, default)

    async def set_async(self, cursor: Any) -> None:
        await asyncio.to_thread(self.set, cursor)


class _Lines(logging.LoggerAdapter[logging.Logger]):
    """Log lines that say which message they are about."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        own = {name: kwargs.pop(name) for name in list(kwargs) if name not in _LOGGING}
        kwargs["extra"] = {**(self.extra or {}), "fields": own, **kwargs.get("extra", {})}
        return msg, kwargs


_LOGGING = frozenset(("exc_info", "stack_info", "stacklevel", "extra"))


class Current:
    """One message that is being worked on."""

    __slots__ = (
        "_note",
        "_noted",
        "_place",
        "_pool",
        "_settled",
        "_stop",
        "_task_store",
        "_until",
        "lease",
        "message",
        "task",
    )  # fmt: skip

    def __init__(self, lease: Lease, task: Task[Any, Any], task_store: TaskStore) -> None:
        self.lease = lease
        self.message: Message = lease.message
        self.task = task
        self._task_store = task_store
        self._stop: str | None = None
        """Why it is to stop."""
        self._pool: Any = None
        self._place: Any = None
        """The task, thread or child that runs it, while it does."""
        self._until: float | None = None
        self._note: dict[str, Any] | None = None
        self._noted = False
        self._settled = False
        """The tray has had it: what comes later, of a function that was not waited for, is nothing to the store."""

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def attempt(self) -> int:
        """The number of this delivery, from 1."""
        return self.message.attempts

    @property
    def cancelled(self) -> bool:
        """Somebody cancelled the message, the lease is lost, the time is over or the worker stops: end soon."""
        return self._stop is not None

    @property
    def seconds_left(self) -> float | None:
        """Until the task's timeout; None without one."""
        if self._until is None:  # an async function that has not waited yet
            return self.task.settings.timeout
        return max(0.0, self._until - time.monotonic())

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry the message; keyword arguments are fields of the line."""
        return _Lines(log, {"task": self.task.name, "message_id": self.id, "attempt": self.attempt})

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self)

    def progress(self, done: float, note: str | None = None) -> None:
        """How much is done, 0 to 1, and perhaps a word on it. Does not wait; it is stored within a second."""
        if not 0 <= done <= 1:
            raise ValueError(f"progress is a number between 0 and 1, not {done}")
        known = self._note if self._note is not None else {}
        self._note = {**known, Note.PROGRESS: done, Note.TOLD: note}
        self._task_store.progressed(self)

    def extend(self, by: Duration | None = None) -> None:
        """Let the lease run for ``by`` from now. The runner keeps leases alive by itself; this is for more than that.

        Raises `LeaseLost`.
        """
        self._task_store.extend(self.lease, by)

    async def extend_async(self, by: Duration | None = None) -> None:
        await asyncio.to_thread(self.extend, by)

    # -- for the runner

    def _known_note(self) -> dict[str, Any]:
        if self._note is None or Note.CURSOR not in self._note:
            found = self._task_store.read_note(self.lease) or {}
            self._noted = self._noted or bool(found)
            self._note = {Note.CURSOR: None, **found, **(self._note or {})}
            if self._note[Note.CURSOR] is None and Note.CURSOR not in found:
                del self._note[Note.CURSOR]
        return self._note

    def _save_note(self) -> None:
        self._noted = True
        self._task_store.write_note(self.lease, self._note)


def current() -> Current:
    """What the running task works on. Raises `InvalidState` outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise InvalidState("no task is running here", hint="tampu.current() is for the functions of tasks") from None


def enter(work: Current) -> None:
    """Make it the current one of this context."""
    _current.set(work)
