"""The order of queues in a claim: in turns by weight, or always as given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tampu.broker import validate
from tampu.model.errors import InvalidConfig

_HEAVIEST = 1000


class QueueOrder:
    """Smooth weighted round robin: each queue comes first in proportion to its weight.

    The others follow it, heavier ones first, so that no claim returns empty while there is work.
    """

    def __init__(self, weights: Mapping[str, int], *, strict: bool = False) -> None:
        if not weights:
            raise InvalidConfig("a worker needs at least one queue", field="queues")
        for name, weight in weights.items():
            validate.name(name, "queue")
            if not isinstance(weight, int) or not 1 <= weight <= _HEAVIEST:
                raise InvalidConfig(f"the weight of {name} must be 1 to {_HEAVIEST}", field="queues")
        self.names = list(weights)
        self._strict = strict or len(weights) == 1
        self._weights = dict(weights)
        self._credit = dict.fromkeys(weights, 0)
        self._heavy = sorted(weights, key=lambda name: -weights[name])

    def next(self) -> list[str]:
        """The queues of the next claim, in order."""
        if self._strict:
            return self.names
        for name, weight in self._weights.items():
            self._credit[name] += weight
        first = max(self.names, key=self._credit.__getitem__)
        self._credit[first] -= sum(self._weights.values())
        return [first, *(name for name in self._heavy if name != first)]


def parse(text: str | Sequence[str]) -> dict[str, int]:
    """``critical=5,default`` → weights."""
    found: dict[str, int] = {}
    parts = [part for one in ([text] if isinstance(text, str) else text) for part in one.split(",")]
    for part in parts:
        name, equals, weight = part.strip().partition("=")
        if not name or (equals and not weight.isdigit()):
            raise InvalidConfig(
                f"{part.strip()!r} is not a queue or queue=weight",
                field="queues",
                hint="for example critical=5,default",
            )
        found[name] = int(weight) if equals else 1
    return found
