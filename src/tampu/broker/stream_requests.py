"""What workers of a stream have asked for and not been answered yet."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import msgspec

from tampu.model.message import Lease
from tampu.model.outcome import Outcome, Settlement


class SettleRequest(msgspec.Struct):
    """One settlement on its way."""

    settlement: Settlement
    future: Future[Outcome]
    begun: tuple[int, Any] | None = None
    """When, and in which trace; None when nobody traces."""


class ExtendRequest(msgspec.Struct):
    """A lease that is to last longer, on its way."""

    lease: Lease
    by: float | None
    """Seconds."""
    future: Future[Lease]


def extended(lease: Lease, until_us: int, *, cancel: bool) -> Lease:
    """The lease as it is now."""
    message = msgspec.structs.replace(lease.message, cancel_requested=cancel)
    return msgspec.structs.replace(lease, message=message, until_us=until_us)
