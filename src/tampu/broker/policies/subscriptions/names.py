"""What the journal says of a message that was broadcast."""

from __future__ import annotations

from collections.abc import Sequence

from tampu.model.definitions import Subscription

BROADCAST = "broadcast"


def reason(subscriptions: Sequence[Subscription]) -> str:
    """Why a message ends that was sent to these: the journal's detail. It names those with a ``start`` (see `fill`)."""
    return BROADCAST + "".join(f" +{one.subscriber}" for one in subscriptions if one.start is not None)


def reached(detail: str | None) -> list[str] | None:
    """The subscribers that `reason` names; None if the detail is not from it."""
    sent, *names = (detail or "").split(" +")
    return names if sent == BROADCAST else None
