"""How an attempt ends: from what the function returned or raised to a settlement of its lease."""

from __future__ import annotations

import traceback
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.model.chance import CHANCE
from tampu.model.errors import TampuError
from tampu.model.message import Lease
from tampu.model.outcome import Ack, Nack, Reject, Release, Settlement
from tampu.model.reasons import DECODE_FAILED, RESULT_INVALID, RETRIES_EXHAUSTED, UNRECOVERABLE
from tampu.model.times import SECOND, Duration
from tampu.worker.arguments import WrongArguments
from tampu.worker.current import CANCELLED, LOST, STOPPING, TIMED_OUT, Current
from tampu.worker.exceptions import Cancelled, Retry, Snooze, TimedOut

_REASON_CHARACTERS = 128
_PLAIN = (TypeError, ValueError, NotImplementedError, RecursionError, msgspec.MsgspecError, TampuError)
"""What says by its text alone why a result can not be encoded."""


class AttemptsUsed(Exception):
    """The message was delivered as often as the task takes it."""


def returned(work: Current, value: Any) -> Settlement:
    """The function has done its work."""
    if value is None:
        return Ack(work.lease)
    try:
        return Ack(work.lease, work.task.arguments.pack_result(value))
    except Exception as error:  # a value that is encoded by code of its own may raise anything
        return bad_result(work.lease, error)


def bad_result(lease: Lease, error: Exception) -> Settlement:
    """Doing it again would do it twice, and end the same."""
    text = str(error) if isinstance(error, _PLAIN) else _told(error)[0]
    return Reject(lease, RESULT_INVALID, f"the result can not be kept: {text}")


def not_begun(work: Current, error: BaseException) -> Settlement | None:
    """The function could not be called: its arguments do not fit, or it has no readable annotations."""
    if isinstance(error, WrongArguments):
        return Reject(work.lease, DECODE_FAILED, str(error))
    if isinstance(error, AttemptsUsed):
        return Reject(work.lease, RETRIES_EXHAUSTED, str(error))
    return raised(work, error)


def raised(work: Current, error: BaseException) -> Settlement | None:
    """The function did not return. None: there is nothing to settle, somebody else has the message."""
    try:
        return _raised(work, error)
    except Exception as odd:  # what was raised holds something that it should not; the attempt has failed all the same
        text = f"{type(error).__name__}, which can not be told: {_told(odd)[0]}"
        return _nack(work, text)


def _raised(work: Current, error: BaseException) -> Settlement | None:
    lease = work.lease
    if work._stop is not None:
        asked = stopped(work)
        if asked is None or isinstance(asked, Release):
            return asked
    if isinstance(error, Snooze):
        return Release(lease, error.after)
    if isinstance(error, Reject):
        return _rejected(lease, error)
    if isinstance(error, Retry):
        text, trace = (error.error, None) if error.error else _told(error)
        return _nack(work, text, trace, error.after)
    if isinstance(error, TimedOut) or work._stop == TIMED_OUT:
        return _nack(work, timeout_text(work), _told(error)[1])
    text, trace = _told(error)
    return _nack(work, text, trace)


def _told(error: BaseException) -> tuple[str | None, str | None]:
    """(text, traceback), also of an exception whose text can not be had."""
    try:
        return validate.error_text(error)
    except Exception as odd:
        trace = "".join(traceback.format_exception(error))  # which minds nothing
        return f"{type(error).__name__}: its text can not be read, {type(odd).__name__}", validate.traceback_text(trace)


def stopped(work: Current) -> Settlement | None:
    """It was asked to stop, and did."""
    if work._stop == LOST:
        return None
    if work._stop in (CANCELLED, STOPPING):
        return Release(work.lease)  # ends as cancelled where that was asked for
    return _nack(work, timeout_text(work))


def timeout_text(work: Current) -> str:
    return f"TimedOut: {work.task.name} ran for longer than {work.task.settings.timeout:g} s"


def asked_to_stop(work: Current) -> type[BaseException]:
    """What is raised inside a function that runs in a thread."""
    return TimedOut if work._stop == TIMED_OUT else Cancelled


def crashed(work: Current, error: str, trace: str | None = None) -> Settlement:
    """The child that ran it is gone, or could not begin."""
    return _nack(work, error, trace)


def _rejected(lease: Lease, error: Reject) -> Settlement:
    """``Reject("reason")`` was raised, or ``Reject(lease, "reason")``."""
    reason = error.lease if isinstance(error.lease, str) else error.reason
    text, trace = _told(error)
    text = error.error or reason if reason else text
    short = reason if 0 < len(reason) <= _REASON_CHARACTERS else UNRECOVERABLE
    return Reject(lease, short, text, error.traceback or trace)


def _nack(work: Current, error: str | None, trace: str | None = None, after: Duration | None = None) -> Nack:
    return Nack(work.lease, error, _delay(work) if after is None else after, trace, _own_max_attempts(work))


def check_attempts(work: Current) -> None:
    """Raise `AttemptsUsed` if the task had all its attempts: the store may not know of its limit.

    A message that was not published by the task carries the queue's max_attempts. The first nack gives it the task's,
    but a lease that ran out does not.
    """
    most = _own_max_attempts(work)
    if most is not None and work.attempt > most:
        raise AttemptsUsed(f"{work.task.name} takes {most} attempts, and the message had them")


def _own_max_attempts(work: Current) -> int | None:
    """The task's own, for a message whose publisher did not set one; None leaves it as it is."""
    message, most = work.lease.message, work.task.settings.max_attempts
    return None if message.body.own_max_attempts is not None or message.max_attempts == most else most


def _delay(work: Current) -> float | None:
    """By the task's own backoff; None leaves it to the queue's."""
    backoff = work.task.settings.backoff
    if backoff is None:
        return None
    return backoff.micros(work.attempt) * backoff.spread(CHANCE.random()) / SECOND
