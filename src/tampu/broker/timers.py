"""Timers: delayed messages of one system queue, which maintenance handles when they are due.

A timer only says which message to look at. What is due is decided from that message and its documents, so a timer that
comes twice, late or for nothing does no harm.
"""

from __future__ import annotations

import msgspec

from tampu.broker.publish_steps import derived_id
from tampu.engines.port import Item
from tampu.model.config import SYSTEM
from tampu.model.decoders import from_json
from tampu.model.message import Body
from tampu.model.values import pack_body

QUEUE = f"{SYSTEM}timers"
TYPE = "review"
FLOW = "flow"
"""The type of timers about flows; their id is that of the flow."""
_MOST_ATTEMPTS = 1000


class Timer(msgspec.Struct, frozen=True):
    """The payload of a timer."""

    id: str
    """The message that it is about."""


read = from_json(Timer).decode


def timer(id: str, round: int, after_us: int, *, run_us: int | None = None) -> Item:
    """A timer for a message. The same timer again is not stored: its id follows from the arguments.

    It is due ``after_us`` after it is stored, or at ``run_us``.
    """
    body = Body(TYPE, msgspec.json.encode(Timer(id)), correlation_id=id)
    return Item(
        body,
        pack_body(body),
        _MOST_ATTEMPTS,
        run_us=run_us,
        delay_us=after_us if run_us is None else None,
        id=derived_id(id, f"timer/{round}/{after_us}"),
    )
