"""Objectives: what share of messages must end well, or soon enough, for gold.slo to measure days against.

Every queue has two of its own accord; a user's for all queues (``*``) goes before those, one for a queue before both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from tampu.model.decoders import from_json
from tampu.model.errors import InvalidConfig

ALL = "*"
MOST = 1000
_EXAMPLE = '{"queue": "emails", "objective": "latency", "target": 0.99, "within": 30}'


class Objective(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    objective: Literal["success", "latency"]
    """``success``: done, out of done, dead and expired. ``latency``: done in time, out of done."""
    target: float
    """The share that must be good, above 0, at most 1."""
    queue: str = ALL
    within: float | None = None
    """Seconds from publish to done, for latency."""

    def __post_init__(self) -> None:
        if not self.queue:
            raise ValueError("queue must be a name, or * for all")
        if not 0 < self.target <= 1:
            raise ValueError("target must be above 0 and at most 1")
        if (self.within is None) is (self.objective == "latency"):
            raise ValueError("latency needs within, and success has none")
        if self.within is not None and not (0 < self.within < math.inf):
            raise ValueError("within must be seconds above 0")


DEFAULTS = (
    Objective(objective="success", target=0.99),
    Objective(objective="latency", target=0.95, within=60.0),
)

_read = from_json(Objective | list[Objective]).decode


def parse(text: bytes | str) -> list[Objective]:
    """One objective or a list of them, as JSON."""
    try:
        found = _read(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"not an objective: {error}", field="objectives", hint=f"such as {_EXAMPLE}") from None
    return check([found] if isinstance(found, Objective) else found)


def check(objectives: Sequence[Objective]) -> list[Objective]:
    """The same, if no two speak of the same thing."""
    if len(objectives) > MOST:
        raise InvalidConfig(f"{len(objectives)} objectives; {MOST} is the most", field="objectives")
    seen = set()
    for one in objectives:
        about = (one.queue, one.objective)
        if about in seen:
            raise InvalidConfig(
                f"two objectives for the {one.objective} of queue {one.queue}", field="objectives", hint="keep one"
            )
        seen.add(about)
    return list(objectives)


def effective(objectives: Iterable[Objective]) -> list[Objective]:
    """With the defaults that no objective for all queues replaces."""
    given = check(list(objectives))
    general = {one.objective for one in given if one.queue == ALL}
    return given + [one for one in DEFAULTS if one.objective not in general]
