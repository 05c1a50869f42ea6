"""What a task may raise to say how its attempt ends, and what a waiting publisher is told. `Reject` is in the model."""

from __future__ import annotations

from tampu.model.errors import InvalidMessage
from tampu.model.message import Message
from tampu.model.times import Duration, duration


class Retry(Exception):
    """Again later: after ``after``, or by the task's backoff. The attempt counts; after the last one it is dead."""

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
    """Not now: again after ``after``, and the attempt does not count."""

    def __init__(self, after: Duration) -> None:
        super().__init__(after)
        duration(after, "after")
        self.after = after

    def __str__(self) -> str:
        return f"again after {self.after}"


class TaskFailed(Exception):
    """The message that a result was waited for has ended in another way than done."""

    def __init__(self, message: Message) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        found = self.message
        why = ": ".join(part for part in (found.reason, found.last_error) if part)
        return f"{found.type} {found.id} is {found.state}" + (f" ({why})" if why else "")


class TimedOut(BaseException):
    """The task ran for longer than its ``timeout``. In a thread it is raised inside the function.

    Not an `Exception`, as `asyncio.CancelledError` is none: an ``except Exception`` around a step of the task must not
    take it for an error of that step.
    """


class Cancelled(BaseException):
    """Somebody cancelled the message, its lease is lost, or the worker stops. In a thread it is raised inside the
    function; as `TimedOut`, it is not an `Exception`."""
