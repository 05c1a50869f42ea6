"""What time brings about is done in bounded steps, however much there is at once."""

from __future__ import annotations

from typing import Any

import tampu
from tampu import Ack
from tampu.engines.port import Sweep
from tests.conformance.house import House, payloads


def _steps(house: House, limit: int) -> list[int]:
    """How many were moved by each sweep, until nothing is due."""
    engine: Any = house.core().engine
    steps = []
    while (due := engine.next_due()) is not None and due <= engine.now():
        (swept,) = engine.run([Sweep(limit)])
        steps.append(swept.moved)
    return steps


def test_leases_that_ran_out_come_back_a_bounded_part_at_a_time(house: House, q: tampu.Queue) -> None:
    q.publish_many("jobs", range(30))
    for limit in (12, 1, 1, 16):
        assert len(q.claim("jobs", limit=limit, lease=30)) == limit
        house.clock.advance(0.001)
    house.clock.advance(31)
    steps = _steps(house, 5)
    assert sum(steps) == 30
    assert max(steps) <= 5
    assert payloads(q.claim("jobs", limit=30)) == list(range(30))


def test_what_is_left_of_a_large_claim_is_found_behind_what_was_settled(house: House, q: tampu.Queue) -> None:
    q.publish_many("jobs", range(2500))
    leases = q.claim("jobs", limit=2500, lease=30)
    other = house.open()
    if not house.private:
        other.settle([Ack(lease) for lease in leases[:-10]])  # by somebody who does not know the claim
    else:
        q.settle([Ack(lease) for lease in leases[:-10]])
    house.clock.advance(31)
    assert payloads(q.claim("jobs", limit=2500)) == list(range(2490, 2500))
