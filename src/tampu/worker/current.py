"""`tampu.current()`: what a running task can read and do about its message."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

from tampu.broker import causes, notes
from tampu.model.errors import InvalidState
from tampu.model.message import Lease, Message
from tampu.model.times import Duration

if TYPE_CHECKING:
    from tampu.worker.flows import CurrentFlow
    from tampu.worker.hand_over import HandOver
    from tampu.worker.tasks import Task

_current: contextvars.ContextVar[Current] = contextvars.ContextVar("tampu-current")
log = logging.getLogger("tampu.task")

CANCELLED = "cancelled"
LOST = "lease lost"
TIMED_OUT = "timed out"
STOPPING = "the worker stops"


class TaskStore(Protocol):
    """Notes, progress and lease extensions of running tasks: straight to the store, or from a child to its worker."""

    def read_note(self, lease: Lease) -> Any: ...
    def write_note(self, lease: Lease, note: Any) -> None: ...
    def extend(self, lease: Lease, by: Duration | None) -> None: ...
    def progressed(self, work: Current) -> None: ...


class Checkpoint:
    """A cursor that survives the attempt, so that the next one continues there. Deleted when the message ends."""

    __slots__ = ("_work",)

    def __init__(self, work: Current) -> None:
        self._work = work

    def get(self, default: Any = None) -> Any:
        """The value set last, in this attempt or an earlier one."""
        return self._work._known_note().get(notes.CURSOR, default)

    def set(self, cursor: Any) -> None:
        """Store a JSON value. Returns when it is stored; raises `LeaseLost` if another worker has the message now."""
        work = self._work
        work._known_note()[notes.CURSOR] = cursor
        work._save_note()

    async def get_async(self, default: Any = None) -> Any:
        return await asyncio.to_thread(self.get, default)

    async def set_async(self, cursor: Any) -> None:
        await asyncio.to_thread(self.set, cursor)


class _MessageLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the message to each log line."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        own = {name: kwargs.pop(name) for name in list(kwargs) if name not in _LOGGING}
        kwargs["extra"] = {**(self.extra or {}), "fields": own, **kwargs.get("extra", {})}
        return msg, kwargs


_LOGGING = frozenset(("exc_info", "stack_info", "stacklevel", "extra"))


class Current:
    """The message that a task works on."""

    __slots__ = (
        "_added",
        "_note",
        "_noted",
        "_pool",
        "_runs_in",
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
        """Why it should stop; None: it should not."""
        self._pool: Any = None
        self._runs_in: Any = None
        """The asyncio task or thread that runs it, while it runs."""
        self._until: float | None = None
        self._note: dict[str, Any] | None = None
        self._noted = False
        self._added = 0
        """How often it has added to its flow."""
        self._settled = False
        """The settle queue has an outcome. A later one, from a function that was abandoned, is ignored."""

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def correlation_id(self) -> str:
        """What the task publishes has it, unless it is published with another: a trace then shows that too."""
        return self.message.correlation_id or self.message.id

    @property
    def attempt(self) -> int:
        """The number of this delivery, from 1."""
        return self.message.attempts

    @property
    def cancelled(self) -> bool:
        """True if the task should end soon: message cancelled, lease lost, timeout, or the worker stops."""
        return self._stop is not None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the task's timeout; None without one."""
        if self._until is None:  # an async function before its first await
            return self.task.settings.timeout
        return max(0.0, self._until - time.monotonic())

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the message to each line. Keyword arguments become fields of the line."""
        return _MessageLogger(log, {"task": self.task.name, "message_id": self.id, "attempt": self.attempt})

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self)

    @property
    def flow(self) -> CurrentFlow:
        """The flow that the message is a member of."""
        from tampu.worker.flows import CurrentFlow

        return CurrentFlow(self)

    def atomic(self, result: Any = None) -> HandOver:
        """Ack this message with ``result`` and publish the next ones, as one unit: all of it takes effect, or nothing.

        ``with tampu.current().atomic() as unit: unit.publish(…)``. Raises `LeaseLost` if another worker has the message
        now; then nothing has changed. The task must return the same result.
        """
        from tampu.worker.hand_over import HandOver

        return HandOver(self, result)

    def progress(self, done: float, note: str | None = None) -> None:
        """Report progress: a number from 0 to 1, and a short text. Does not wait; it is stored within a second."""
        if not 0 <= done <= 1:
            raise ValueError(f"progress is a number between 0 and 1, not {done}")
        known = self._note if self._note is not None else {}
        self._note = {**known, notes.PROGRESS: done, notes.TEXT: note}
        self._task_store.progressed(self)

    def extend(self, by: Duration | None = None) -> None:
        """Extend the lease to ``by`` from now; raises `LeaseLost`. Seldom needed: the worker extends leases itself."""
        self._task_store.extend(self.lease, by)

    async def extend_async(self, by: Duration | None = None) -> None:
        await asyncio.to_thread(self.extend, by)

    # -- for the runner

    def _known_note(self) -> dict[str, Any]:
        if self._note is None or notes.CURSOR not in self._note:
            found = self._task_store.read_note(self.lease) or {}
            self._noted = self._noted or bool(found)
            self._note = {notes.CURSOR: None, **found, **(self._note or {})}
            if self._note[notes.CURSOR] is None and notes.CURSOR not in found:
                del self._note[notes.CURSOR]
        return self._note

    def _save_note(self) -> None:
        self._noted = True
        self._task_store.write_note(self.lease, self._note)


def current() -> Current:
    """The message of the running task. Raises `InvalidState` outside of a task."""
    try:
        return _current.get()
    except LookupError:
        raise InvalidState("no task is running here", hint="call tampu.current() inside a task") from None


def running() -> Current | None:
    """The message of the running task; None outside of a task."""
    return _current.get(None)


def enter(work: Current) -> None:
    """Make it the current message of this context."""
    _current.set(work)
    causes.begin(work.lease.message)
