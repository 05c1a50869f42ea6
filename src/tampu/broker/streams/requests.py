"""Requests of a stream's worker that have no reply yet."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import msgspec

from tampu.model.message import Lease
from tampu.model.outcome import Outcome, Settlement


class SettleRequest(msgspec.Struct):
    """A settlement, and the future for its outcome."""

    settlement: Settlement
    future: Future[Outcome]
    begun: tuple[int, Any] | None = None
    """(begin in ns, trace context) for the span; None without tracing."""


class ExtendRequest(msgspec.Struct):
    """A lease to extend, and the future for the extended lease."""

    lease: Lease
    by: float | None
    """Seconds."""
    future: Future[Lease]


def extended(lease: Lease, until_us: int, *, cancel: bool) -> Lease:
    """The lease after it was extended."""
    message = msgspec.structs.replace(lease.message, cancel_requested=cancel)
    return msgspec.structs.replace(lease, message=message, until_us=until_us)
