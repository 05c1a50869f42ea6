"""Which errors of a task are worth another attempt: ``retry_on`` and ``dead_on`` of `App.task`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tampu.model.errors import InvalidConfig
from tampu.model.times import SECOND, Duration, duration

Errors = type[BaseException] | tuple[type[BaseException], ...]
Decide = Callable[[BaseException, int], bool | Duration | None]
"""Gets the error and the number of the attempt. True: retry by the backoff; a duration: retry after it; False or None:
the message is dead."""
_HINT = "exception classes, such as (OSError, TimeoutError)"


class RetryPolicy(msgspec.Struct, frozen=True):
    """Errors of other classes than ``retry_on``, and those of ``dead_on``, make the message dead at once."""

    retry_on: tuple[type[BaseException], ...] | None = None
    dead_on: tuple[type[BaseException], ...] = ()
    decide: Decide | None = None

    @classmethod
    def of(cls, retry_on: Any, dead_on: Any) -> RetryPolicy | None:
        """The policy of these options; None if every error is retried."""
        if retry_on is None and dead_on is None:
            return None
        never = () if dead_on is None else _classes(dead_on, "dead_on")
        if callable(retry_on) and not isinstance(retry_on, type):
            return cls(None, never, retry_on)
        return cls(None if retry_on is None else _classes(retry_on, "retry_on"), never)

    def retry(self, error: BaseException, attempt: int) -> bool | float:
        """False: dead; True: retry by the backoff; a number: retry after so many seconds.

        Raises what a function of the user raises, and `InvalidConfig` for an answer that is none of these.
        """
        if isinstance(error, self.dead_on):
            return False
        if self.decide is None:
            return self.retry_on is None or isinstance(error, self.retry_on)
        answer = self.decide(error, attempt)
        if answer is None or isinstance(answer, bool):
            return bool(answer)
        return duration(answer, "retry_on", error=InvalidConfig) / SECOND


def _classes(given: Any, field: str) -> tuple[type[BaseException], ...]:
    classes = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            more = "" if field == "dead_on" else ", or a function of (error, attempt)"
            raise InvalidConfig(f"{field} cannot be {one!r:.60}", field=field, hint=_HINT + more)
    return classes
