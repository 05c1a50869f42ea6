"""How a lease can end, and the outcome of each item of a batch."""

from __future__ import annotations

from typing import Any

import msgspec

from tampu.model.errors import TampuError
from tampu.model.message import Lease, State
from tampu.model.reasons import UNRECOVERABLE
from tampu.model.times import Duration


class Ack(msgspec.Struct, frozen=True):
    """The work is done. ``result`` is kept for the queue's ``result_ttl``."""

    lease: Lease | str
    result: Any = None


class Nack(msgspec.Struct, frozen=True):
    """The work failed: retry after the queue's backoff or ``delay``; dead if no attempts are left."""

    lease: Lease | str
    error: str | None = None
    delay: Duration | None = None
    traceback: str | None = None
    max_attempts: int | None = None
    """Replaces the message's own from now on, this attempt included; None leaves it."""


class Reject(Exception):
    """The work can never succeed: dead now, for ``reason``.

    To settle, pass the lease: ``Reject(lease, "no_such_user")``. A task raises it without a lease:
    ``raise Reject("no_such_user")``.
    """

    def __init__(
        self,
        lease: Lease | str = UNRECOVERABLE,
        reason: str = UNRECOVERABLE,
        error: str | None = None,
        traceback: str | None = None,
    ) -> None:
        super().__init__(lease, reason, error, traceback)
        self.lease = lease
        self.reason = reason
        self.error = error
        self.traceback = traceback

    def __str__(self) -> str:
        return self.error or (self.lease if isinstance(self.lease, str) else self.reason)


class Release(msgspec.Struct, frozen=True):
    """Give the message back, ready now or after ``delay``. The attempt does not count."""

    lease: Lease | str
    delay: Duration | None = None


class AskReview(msgspec.Struct, frozen=True):
    """Give the message back, held until a person has decided. How a worker settles when a task raises `Review`."""

    lease: Lease
    review: Any
    reason: str | None = None


Settlement = Ack | Nack | Reject | Release | AskReview


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one item of a batch: the new state of the message, or the error; then it is unchanged."""

    id: str | None
    state: State | None
    error: TampuError | None = None

    @property
    def ok(self) -> bool:
        return self.error is None
