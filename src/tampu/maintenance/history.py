"""What the leader knows of the recent past for alerts, stored from time to time, so that the next leader knows it too.

One small document for each tenant: a few samples of each queue, since when queues have not moved, and since when
measures are above their limits. It is written at most every five minutes, and only where something has happened.
"""

from __future__ import annotations

import msgspec

from tampu.broker.policies.alerts.state import HISTORY, KIND
from tampu.engines.port import Document, PutDocument
from tampu.model.decoders import from_json
from tampu.model.times import SECOND

EVERY_US = 300 * SECOND
_SAMPLES = 12
"""Of one queue."""
_MOST_QUEUES = 1000


class Sample(msgspec.Struct, frozen=True, array_like=True):
    at: int
    dead: int
    good: int
    bad: int


class Still(msgspec.Struct, frozen=True, array_like=True):
    """The counts of a queue with leased messages, and since when they are the same."""

    counts: dict[str, int]
    since: int


class History(msgspec.Struct, frozen=True, omit_defaults=True):
    began: int
    last: int
    samples: dict[str, list[Sample]] = {}
    still: dict[str, Still] = {}
    pending: dict[str, dict[str, int]] = {}
    """Since when a measure is above, by alert and target."""


_decode = from_json(History).decode


def read(document: Document) -> History:
    return _decode(document.value)


def saving(tenant: str, history: History) -> PutDocument:
    """The call that stores a history, thinned out: samples hold until the next, so some suffice."""
    queues = sorted(history.samples, key=lambda queue: -history.samples[queue][-1].at)[:_MOST_QUEUES]
    thin = msgspec.structs.replace(history, samples={queue: _some(history.samples[queue]) for queue in queues})
    return PutDocument(KIND, tenant, HISTORY, msgspec.json.encode(thin))


def _some(samples: list[Sample]) -> list[Sample]:
    """The first and the last, and some in between."""
    step = max(1, -(-len(samples) // (_SAMPLES - 1)))
    chosen = samples[::step]
    return chosen if chosen[-1] is samples[-1] else [*chosen, samples[-1]]
