"""How an attempt ends: from what the function returned or raised to a settlement of its lease."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from tampu.broker import incoming
from tampu.model.message import Lease
from tampu.model.outcome import Ack, Nack, Reject, Release, Settlement
from tampu.model.times import SECOND
from tampu.worker.arguments import WrongArguments, pack_result
from tampu.worker.current import CANCELLED, LOST, STOPPING, TIMED_OUT, Current
from tampu.worker.raising import Cancelled, Retry, Snooze, TimedOut

_REASON_CHARACTERS = 128


def returned(work: Current, value: Any) -> Settlement:
    """The function has done its work."""
    if value is None:
        return Ack(work.lease)
    try:
        return Ack(work.lease, pack_result(value))
    except (TypeError, ValueError, NotImplementedError, RecursionError, msgspec.MsgspecError) as error:
        return bad_result(work.lease, error)


def bad_result(lease: Lease, error: Exception) -> Settlement:
    """Doing it again would do it twice, and end the same."""
    return Reject(lease, "result_invalid", f"the result can not be kept: {error}")


def undecodable(lease: Lease, error: WrongArguments) -> Settlement:
    return Reject(lease, "decode_failed", str(error))


def raised(work: Current, error: BaseException) -> Settlement | None:
    """The function did not return. None: there is nothing to settle, somebody else has the message."""
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
        text, trace = (error.error, None) if error.error else incoming.error_text(error)
        return Nack(lease, text, _delay(work) if error.after is None else error.after, trace)
    if isinstance(error, TimedOut) or work._stop == TIMED_OUT:
        _, trace = incoming.error_text(error)
        return Nack(lease, timeout_text(work), _delay(work), trace)
    text, trace = incoming.error_text(error)
    return Nack(lease, text, _delay(work), trace)


def stopped(work: Current) -> Settlement | None:
    """It was asked to stop, and did."""
    if work._stop == LOST:
        return None
    if work._stop in (CANCELLED, STOPPING):
        return Release(work.lease)  # ends as cancelled where that was asked for
    return Nack(work.lease, timeout_text(work), _delay(work))


def timeout_text(work: Current) -> str:
    return f"TimedOut: {work.task.name} ran for longer than {work.task.settings.timeout:g} s"


def asked_to_stop(work: Current) -> Exception:
    """What is raised inside a function that runs in a thread."""
    return TimedOut(timeout_text(work)) if work._stop == TIMED_OUT else Cancelled(work._stop or CANCELLED)


def crashed(work: Current, error: str, trace: str | None = None) -> Settlement:
    """The child that ran it is gone, or could not begin."""
    return Nack(work.lease, error, _delay(work), trace)


def _rejected(lease: Lease, error: Reject) -> Settlement:
    """``Reject("reason")`` was raised, or ``Reject(lease, "reason")``."""
    reason = error.lease if isinstance(error.lease, str) else error.reason
    text, trace = incoming.error_text(error)
    text = error.error or reason if reason else text
    short = reason if 0 < len(reason) <= _REASON_CHARACTERS else "unrecoverable"
    return Reject(lease, short, text, error.traceback or trace)


def _delay(work: Current) -> float | None:
    """By the task's own backoff; None leaves it to the queue's."""
    backoff = work.task.settings.backoff
    if backoff is None:
        return None
    return backoff.micros(work.attempt) * backoff.spread(random.random()) / SECOND
