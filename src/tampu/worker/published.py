"""A task that was published: its state, progress and result, and how to cancel it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from tampu.broker import access, notes
from tampu.model.message import Message
from tampu.model.outcome import Outcome
from tampu.model.states import TERMINAL, State
from tampu.model.times import SECOND, Duration, duration
from tampu.worker.exceptions import TaskFailed

if TYPE_CHECKING:
    from tampu.worker.tasks import Task

R = TypeVar("R")
_LONG = 3600.0


class Published(msgspec.Struct, Generic[R], eq=False, gc=False):
    """A task that was published. `App.find` makes one from an id."""

    task: Task[Any, R]
    message: Message
    """As it was when it was published, or read last."""

    @property
    def id(self) -> str:
        return self.message.id

    def __repr__(self) -> str:
        return f"<{self.task.name} {self.id}>"

    # -- now

    def refresh(self) -> Message:
        """Read the message as it is now, with its failures and progress; ``message`` is this one from now on."""
        self.message = self.task.app.store.get(self.id)
        return self.message

    async def refresh_async(self) -> Message:
        self.message = await self.task.app.store_async.get(self.id)
        return self.message

    def state(self) -> State:
        """The state of the message now."""
        return self.refresh().state

    async def state_async(self) -> State:
        return (await self.refresh_async()).state

    def progress(self) -> tuple[float, str | None] | None:
        """The task's last progress report: a number from 0 to 1, and a text. None if there is none yet."""
        store = self.task.app.store
        return _progress(access.run(store, access.verbs(store).read_note(self.id)))

    async def progress_async(self) -> tuple[float, str | None] | None:
        app = self.task.app
        return _progress(await access.run_async(app.store_async, access.verbs(app.store).read_note(self.id)))

    def cancel(self) -> Outcome:
        """Cancel it. If it runs, its worker is asked to stop it, and ``state`` of the outcome is ``leased``."""
        return self.task.app.store.cancel(self.id)[0]

    async def cancel_async(self) -> Outcome:
        return (await self.task.app.store_async.cancel(self.id))[0]

    # -- the end

    def wait(self, timeout: Duration | None = None) -> Message:
        """Wait until it has ended, in any way. Raises `TimeoutError` if it has not."""
        store, until = self.task.app.store, _until(timeout)
        while True:
            found = store.result(self.id, wait=min(_LONG, max(0.0, until - time.monotonic())))
            if found.state in TERMINAL or time.monotonic() >= until:
                return self._ended(found)

    async def wait_async(self, timeout: Duration | None = None) -> Message:
        store, until = self.task.app.store_async, _until(timeout)
        while True:
            found = await store.result(self.id, wait=min(_LONG, max(0.0, until - time.monotonic())))
            if found.state in TERMINAL or time.monotonic() >= until:
                return self._ended(found)

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the result of the task. Raises `TimeoutError`, or `TaskFailed` if the message was not done."""
        return self._result(self.wait(timeout))

    async def result_async(self, timeout: Duration | None = None) -> R:
        return self._result(await self.wait_async(timeout))

    def _ended(self, found: Message) -> Message:
        self.message = found
        if found.state not in TERMINAL:
            raise TimeoutError(f"{self!r} has not ended yet; it is {found.state}")
        return found

    def _result(self, found: Message) -> R:
        if found.state is not State.DONE:
            raise TaskFailed(found)
        return cast(R, self.task.arguments.read_result(found.result_raw))


def _progress(note: Any) -> tuple[float, str | None] | None:
    known = note or {}
    return (known[notes.PROGRESS], known.get(notes.TEXT)) if notes.PROGRESS in known else None


def _until(timeout: Duration | None) -> float:
    return float("inf") if timeout is None else time.monotonic() + duration(timeout, "timeout") / SECOND
