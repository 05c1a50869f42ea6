"""Middleware: code that runs around publishing and running of every task, such as metrics, tracing or compression."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tampu.model.message import Message, NewMessage

if TYPE_CHECKING:
    from tampu.worker.current import Current
    from tampu.worker.tasks import Task

_NOTHING = contextlib.nullcontext()


class Middleware:
    """Override the methods you need. The first in an app's list is the outermost."""

    def publish(self, new: NewMessage, task: Task[Any, Any]) -> NewMessage:  # noqa: ARG002 - for those who override it
        """Return the message to store. Exceptions go to the publisher."""
        return new

    def receive(self, message: Message) -> Message:
        """Return the message for the task: undo what `publish` did. An exception dead-letters the message."""
        return message

    def run(self, current: Current) -> contextlib.AbstractContextManager[Any]:  # noqa: ARG002 - for those who override it
        """A context manager around the task; it sees what the task raises. Runs in the same thread or child process."""
        return _NOTHING


def overriding(middleware: list[Middleware], name: str) -> list[Middleware]:
    """The middleware that overrides this method, so that a task pays only for these."""
    return [one for one in middleware if getattr(type(one), name) is not getattr(Middleware, name)]
