"""The log line of each attempt that has ended: a failure is a warning, a dead message an error, the rest information.

Lines go to the logger ``tampu.worker.attempts``. The worker command shows warnings and errors, and all lines with
``--log-level info``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from datetime import UTC, datetime

from tampu.broker.store import Store
from tampu.model.errors import TampuError
from tampu.model.outcome import Ack, AskReview, Nack, Outcome, Reject, Release, Settlement
from tampu.model.states import State
from tampu.model.times import SECOND, duration
from tampu.worker.current import Current
from tampu.worker.logs.user_frames import user_frames

NAME = "tampu.worker.attempts"
log = logging.getLogger(NAME)
_MOST_LOOKED_UP = 10
"""Retries of one batch whose time is looked up in the store. The others say that the queue's backoff decides."""
Attempt = tuple[Current, Settlement, Outcome]


class AttemptLog:
    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, attempts: Iterable[Attempt]) -> None:
        """Log attempts that were settled together."""
        looked_up = 0
        for work, settlement, outcome in attempts:
            if isinstance(settlement, Ack) or outcome.state == State.CANCELLED:
                _info(work, outcome, f"{outcome.state}")
            elif isinstance(settlement, Release | AskReview):
                _info(work, outcome, f"given back, {outcome.state}")
            elif outcome.state == State.DEAD:
                _dead(work, settlement)
            elif isinstance(settlement, Nack):
                when = None if settlement.delay is None else duration(settlement.delay, "delay") / SECOND
                if when is None and looked_up < _MOST_LOOKED_UP:
                    looked_up += 1
                    when = self._seconds_to_retry(work.id)
                _failed(work, settlement, when)

    def _seconds_to_retry(self, id: str) -> float | None:
        with contextlib.suppress(
            TampuError
        ):  # a key that may not view it, or a store that is gone: it is only a log line
            run_at = self._store.get(id).run_at
            return None if run_at is None else max((run_at - datetime.now(UTC)).total_seconds(), 0.0)
        return None


def _info(work: Current, outcome: Outcome, text: str) -> None:
    if log.isEnabledFor(logging.INFO):
        facts = _facts(work, work.lease.message.max_attempts, outcome=str(outcome.state))
        log.info("%s %s: %s", work.task.name, work.id, text, extra={"facts": facts})


def _failed(work: Current, nack: Nack, seconds: float | None) -> None:
    most = nack.max_attempts or work.lease.message.max_attempts
    again = "by the queue's backoff" if seconds is None else f"in {seconds:.3g} s"
    log.warning(
        "%s %s: attempt %d of %d failed: %s; next try %s",
        work.task.name, work.id, work.attempt, most, nack.error or "no error was given", again,
        extra={"facts": _facts(work, most, outcome="retry", error=nack.error, retry_in=seconds)},
    )  # fmt: skip


def _dead(work: Current, settlement: Nack | Reject) -> None:
    most = work.lease.message.max_attempts
    if isinstance(settlement, Nack):
        reason, most = "no attempts are left", settlement.max_attempts or most
    else:
        reason = settlement.reason
    trace = user_frames(settlement.traceback) if settlement.traceback else None
    error = "" if settlement.error in (None, reason) else f": {settlement.error}"
    log.error(
        "%s %s is dead after attempt %d of %d (%s)%s%s",
        work.task.name, work.id, work.attempt, most, reason, error, f"\n{trace}" if trace else "",
        extra={"facts": _facts(work, most, outcome="dead", error=settlement.error, reason=reason, traceback=trace)},
    )  # fmt: skip


def _facts(work: Current, most: int, **more: object) -> dict[str, object]:
    """What a line of JSON has besides its text."""
    known = {
        "task": work.task.name,
        "message_id": work.id,
        "queue": work.lease.message.queue,
        "attempt": work.attempt,
        "max_attempts": most,
        **more,
    }
    return {name: value for name, value in known.items() if value is not None}
