"""Exceptions that a task raises to end its attempt, and those that others get. `Reject` is in the model."""

from __future__ import annotations

from typing import Any

from tampu.model.errors import InvalidMessage
from tampu.model.flows import FlowRecord
from tampu.model.message import Message
from tampu.model.times import Duration, duration


class Retry(Exception):
    """Try again after ``after``, or by the task's backoff. The attempt counts; after the last the message is dead."""

    def __init__(self, error: str | None = None, *, after: Duration | None = None) -> None:
        super().__init__(error, after)
        if error is not None and not isinstance(error, str):
            raise InvalidMessage("error must be a text", field="error")
        if after is not None:
            duration(after, "after")
        self.error = error
        self.after = after

    def __str__(self) -> str:
        return self.error or "the task asked for another attempt"


class Snooze(Exception):
    """Try again after ``after``; the attempt does not count."""

    def __init__(self, after: Duration) -> None:
        super().__init__(after)
        duration(after, "after")
        self.after = after

    def __str__(self) -> str:
        return f"snoozed for {self.after}"


class Review(Exception):
    """Ask a person: the message is held until somebody has decided. The attempt does not count, the checkpoint stays.

    ``review`` is the name of a pattern, or a review. The next delivery has the decision in
    ``tampu.current().message.review``.
    """

    def __init__(self, review: str | dict[str, Any], reason: str | None = None) -> None:
        super().__init__(review, reason)
        self.review = review
        self.reason = reason

    def __str__(self) -> str:
        return self.reason or "the task asked for a review"


class TaskFailed(Exception):
    """The caller waited for a result, but the message ended as dead, cancelled or expired."""

    def __init__(self, message: Message) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        found = self.message
        why = ": ".join(part for part in (found.reason, found.last_error) if part)
        return f"{found.type} {found.id} is {found.state}" + (f" ({why})" if why else "")


class FlowFailed(Exception):
    """The caller waited for the result of a flow, but the flow has failed or was cancelled."""

    def __init__(self, flow: FlowRecord) -> None:
        super().__init__(flow)
        self.flow = flow

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {state}" for state, n in sorted(self.flow.counts.items()))
        return f"flow {self.flow.name} {self.flow.id} is {self.flow.status}: {counts}"


class TimedOut(BaseException):
    """The task ran longer than its ``timeout``. In a thread it is raised inside the function.

    Not an `Exception`, like `asyncio.CancelledError`: an ``except Exception`` in the task must not catch it.
    """


class Cancelled(BaseException):
    """The message was cancelled, its lease is lost, or the worker stops. In a thread it is raised inside the
    function. Like `TimedOut`, it is not an `Exception`."""
