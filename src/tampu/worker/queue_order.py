"""Which queue is asked first: in turns by weight, or always in the order given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tampu.broker import validate
from tampu.model.errors import InvalidConfig

_HEAVIEST = 1000


class QueueOrder:
    """Smooth weighted turns: over any stretch of claims each queue is first as often as its weight says.

    The others come after it, heavier ones first, so that no claim is answered empty while there is work.
    """

    def __init__(self, weights: Mapping[str, int], *, strict: bool = False) -> None:
        if not weights:
            raise InvalidConfig("a worker needs a queue", field="queues")
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
        """The queues of the next claim, in their order."""
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
                f"{part.strip()!r} is not a queue with a weight", field="queues", hint="critical=5,default"
            )
        found[name] = int(weight) if equals else 1
    return found
