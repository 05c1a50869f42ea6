"""What may stand around publishing and running: metrics, tracing, compression, whatever every task shares."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tampu.model.message import Message, NewMessage

if TYPE_CHECKING:
    from tampu.worker.current import Current
    from tampu.worker.tasks import Task

_NOTHING = contextlib.nullcontext()


class Middleware:
    """Override what you need. The first of an app's list is the outermost."""

    def publish(self, new: NewMessage, task: Task[Any, Any]) -> NewMessage:  # noqa: ARG002 - for those who override it
        """The message as it is to be stored; what it raises is the publisher's error."""
        return new

    def receive(self, message: Message) -> Message:
        """The message as the task is to see it: undoes what `publish` did. What it raises dead-letters the message."""
        return message

    def run(self, current: Current) -> contextlib.AbstractContextManager[Any]:  # noqa: ARG002 - for those who override it
        """Entered before the task and left after it, with what it raised; in the thread or child that runs it."""
        return _NOTHING


def overriding(middleware: list[Middleware], name: str) -> list[Middleware]:
    """Those that do something there: a task pays only for these."""
    return [one for one in middleware if getattr(type(one), name) is not getattr(Middleware, name)]
