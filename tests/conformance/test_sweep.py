"""Expired leases are handled in bounded steps, however many there are at once."""

from __future__ import annotations

from typing import Any

import tampu
from tampu import Ack
from tampu.engines.port import Sweep
from tests.conformance.harness import Harness, payloads


def _steps(harness: Harness, limit: int) -> list[int]:
    """How many were moved by each sweep, until nothing is due."""
    engine: Any = harness.core().engine
    steps = []
    while (due := engine.next_due()) is not None and due <= engine.now():
        (swept,) = engine.run([Sweep(limit)])
        steps.append(swept.moved)
    return steps


def test_expired_leases_come_back_in_bounded_steps(harness: Harness, store: tampu.Store) -> None:
    store.publish_many("jobs", range(30))
    for limit in (12, 1, 1, 16):
        assert len(store.claim("jobs", limit=limit, lease=30)) == limit
        harness.clock.advance(0.001)
    harness.clock.advance(31)
    steps = _steps(harness, 5)
    assert sum(steps) == 30
    assert max(steps) <= 5
    assert payloads(store.claim("jobs", limit=30)) == list(range(30))


def test_the_rest_of_a_large_claim_is_found_behind_what_was_settled(harness: Harness, store: tampu.Store) -> None:
    store.publish_many("jobs", range(2500))
    leases = store.claim("jobs", limit=2500, lease=30)
    other = harness.open()
    if not harness.private:
        other.settle([Ack(lease) for lease in leases[:-10]])  # by somebody who does not know the claim
    else:
        store.settle([Ack(lease) for lease in leases[:-10]])
    harness.clock.advance(31)
    assert payloads(store.claim("jobs", limit=2500)) == list(range(2490, 2500))
