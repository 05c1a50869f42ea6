"""How an attempt ends: from what the function returned or raised to a settlement of its lease."""

from __future__ import annotations

import traceback
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.model.errors import TampuError
from tampu.model.message import Lease
from tampu.model.outcome import Ack, AskReview, Nack, Reject, Release, Settlement
from tampu.model.reasons import DECODE_FAILED, RESULT_INVALID, RETRIES_EXHAUSTED, UNRECOVERABLE
from tampu.model.times import CHANCE, SECOND, Duration
from tampu.worker.arguments import WrongArguments, WrongResult
from tampu.worker.current import CANCELLED, LOST, STOPPING, TIMED_OUT, Current
from tampu.worker.exceptions import Cancelled, Retry, Review, Snooze, TimedOut
from tampu.worker.retry_policy import RetryPolicy

_REASON_CHARACTERS = 128
_SELF_EXPLAINING = (TypeError, ValueError, NotImplementedError, RecursionError, msgspec.MsgspecError, TampuError)
"""Errors whose text is enough to say why a result cannot be encoded."""


class AttemptsUsed(Exception):
    """The message already had all attempts that the task allows."""


def returned(work: Current, value: Any) -> Settlement:
    """The function returned a value."""
    if value is None and work.task.arguments.may_return_none:
        return Ack(work.lease)
    try:
        return Ack(work.lease, work.task.arguments.pack_result(value))
    except Exception as error:  # a value with its own encoder may raise anything
        return bad_result(work.lease, error)


def bad_result(lease: Lease, error: Exception) -> Settlement:
    """Reject, not retry: another attempt would repeat the work and fail again."""
    if isinstance(error, WrongResult):
        return Reject(lease, RESULT_INVALID, str(error))
    text = str(error) if isinstance(error, _SELF_EXPLAINING) else _describe(error)[0]
    return Reject(lease, RESULT_INVALID, f"the result cannot be stored: {text}")


def not_begun(work: Current, error: BaseException) -> Settlement | None:
    """The function could not be called: its arguments do not fit, or its annotations cannot be read."""
    if isinstance(error, WrongArguments):
        return Reject(work.lease, DECODE_FAILED, str(error))
    if isinstance(error, AttemptsUsed):
        return Reject(work.lease, RETRIES_EXHAUSTED, str(error))
    return raised(work, error, in_task=False)


def raised(work: Current, error: BaseException, *, in_task: bool = True) -> Settlement | None:
    """The function raised. None: nothing to settle, another worker has the message."""
    try:
        return _raised(work, error, in_task=in_task)
    except Exception as failure:  # the raised error has invalid fields; the attempt has failed all the same
        text = f"{type(error).__name__}, which cannot be described: {_describe(failure)[0]}"
        return _nack(work, text)


def _raised(work: Current, error: BaseException, *, in_task: bool) -> Settlement | None:
    lease = work.lease
    if work._stop is not None:
        asked = stopped(work)
        if asked is None or isinstance(asked, Release):
            return asked
    if isinstance(error, Snooze | Review):
        return _given_back(lease, error)
    if isinstance(error, Reject):
        return _rejected(lease, error)
    if isinstance(error, Retry):
        text, trace = (error.error, None) if error.error else _describe(error)
        return _nack(work, text, trace, error.after)
    if isinstance(error, TimedOut) or work._stop == TIMED_OUT:
        return _nack(work, timeout_text(work), _describe(error)[1])
    return _failed(work, error, work.task.settings.retry if in_task else None)


def _failed(work: Current, error: BaseException, policy: RetryPolicy | None) -> Settlement:
    """By the task's ``retry_on`` and ``dead_on``: another attempt, or the message is dead."""
    text, trace = _describe(error)
    if policy is None:
        return _nack(work, text, trace)
    try:
        again = policy.retry(error, work.attempt)
    except Exception as failure:  # a function of the user
        return _nack(work, f"{text} (and retry_on failed: {_describe(failure)[0]})", trace)
    if again is False:
        return Reject(work.lease, UNRECOVERABLE, text, trace)
    return _nack(work, text, trace, None if again is True else again)


def _describe(error: BaseException) -> tuple[str | None, str | None]:
    """(text, traceback), also of an exception whose ``str()`` raises."""
    try:
        return validate.error_text(error)
    except Exception as failure:
        trace = "".join(traceback.format_exception(error))  # does not fail on such errors
        return f"{type(error).__name__}: its text cannot be read, {type(failure).__name__}", validate.traceback_text(
            trace
        )


def stopped(work: Current) -> Settlement | None:
    """The function was asked to stop, and stopped."""
    if work._stop == LOST:
        return None
    if work._stop in (CANCELLED, STOPPING):
        return Release(work.lease)  # a message with a cancel request ends as cancelled
    return _nack(work, timeout_text(work))


def _given_back(lease: Lease, error: Snooze | Review) -> Settlement:
    if isinstance(error, Snooze):
        return Release(lease, error.after)
    return AskReview(lease, msgspec.to_builtins(error.review), error.reason)


def bad_review(ask: AskReview, error: Exception) -> Settlement:
    """There can be no such review: the attempt has failed."""
    return Nack(ask.lease, f"the review cannot be asked for: {error}")


def timeout_text(work: Current) -> str:
    return f"TimedOut: {work.task.name} ran for longer than {work.task.settings.timeout:g} s"


def asked_to_stop(work: Current) -> type[BaseException]:
    """The exception to raise inside a function that runs in a thread."""
    return TimedOut if work._stop == TIMED_OUT else Cancelled


def crashed(work: Current, error: str, trace: str | None = None) -> Settlement:
    """The child process died, or could not start the task."""
    return _nack(work, error, trace)


def _rejected(lease: Lease, error: Reject) -> Settlement:
    """``Reject("reason")`` was raised, or ``Reject(lease, "reason")``."""
    reason = error.lease if isinstance(error.lease, str) else error.reason
    text, trace = _describe(error)
    text = error.error or reason if reason else text
    short = reason if 0 < len(reason) <= _REASON_CHARACTERS else UNRECOVERABLE
    return Reject(lease, short, text, error.traceback or trace)


def _nack(work: Current, error: str | None, trace: str | None = None, after: Duration | None = None) -> Nack:
    return Nack(work.lease, error, _delay(work) if after is None else after, trace, _own_max_attempts(work))


def check_attempts(work: Current) -> None:
    """Raise `AttemptsUsed` if the message had all attempts of the task: the store may not know the task's limit.

    A message that was not published through the task has the queue's max_attempts. The first nack sets the task's,
    but an expired lease does not.
    """
    most = _own_max_attempts(work)
    if most is not None and work.attempt > most:
        raise AttemptsUsed(f"all {most} attempts of {work.task.name} are used")


def _own_max_attempts(work: Current) -> int | None:
    """The task's max_attempts, if the publisher did not set one; None leaves the message's as it is."""
    message, most = work.lease.message, work.task.settings.max_attempts
    return None if message.body.own_max_attempts is not None or message.max_attempts == most else most


def _delay(work: Current) -> float | None:
    """Delay by the task's backoff; None uses the queue's."""
    backoff = work.task.settings.backoff
    if backoff is None:
        return None
    return backoff.micros(work.attempt) * backoff.spread(CHANCE.random()) / SECOND
