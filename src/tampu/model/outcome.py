"""How a lease ends, and what came of each item of a batch."""

from __future__ import annotations

from typing import Any

import msgspec

from tampu.model.errors import TampuError
from tampu.model.message import Lease, State
from tampu.model.reasons import UNRECOVERABLE
from tampu.model.times import Duration


class Ack(msgspec.Struct, frozen=True):
    """Carried out. ``result`` is kept for the queue's ``result_ttl``."""

    lease: Lease | str
    result: Any = None


class Nack(msgspec.Struct, frozen=True):
    """Failed: again later, by the queue's backoff or after ``delay``; dead when the attempts are used up."""

    lease: Lease | str
    error: str | None = None
    delay: Duration | None = None
    traceback: str | None = None
    max_attempts: int | None = None
    """The message's from now on, this attempt included; None leaves it as it is."""


class Reject(Exception):
    """Failed for good: dead now, for ``reason``.

    To settle, it is given the lease: ``Reject(lease, "no_such_user")``. A task that knows it can never succeed raises
    it, and needs no lease for that: ``raise Reject("no_such_user")``.
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
    """Given back unworked, for now or for after ``delay``; the attempt does not count."""

    lease: Lease | str
    delay: Duration | None = None


Settlement = Ack | Nack | Reject | Release


class Outcome(msgspec.Struct, frozen=True):
    """What became of one item of a batch: the state the message is in now, or the error that left it unchanged."""

    id: str | None
    state: State | None
    error: TampuError | None = None

    @property
    def ok(self) -> bool:
        return self.error is None
