"""How long a waiting claim sleeps: until it is woken, or until the time it knows of."""

from __future__ import annotations

from typing import Any

import tampu
from tampu.broker import access
from tampu.broker.core import WaitForMessages
from tampu.engines.port import Claim, RetryLater


def _pause(store: tampu.Store, answer: Any, *queues: str) -> WaitForMessages:
    """What a claim that waits for a minute does when it was answered so."""
    steps = access.verbs(store).claim(list(queues), wait=60)
    assert isinstance(next(steps), Claim)
    step = steps.send(answer)
    assert isinstance(step, WaitForMessages)
    return step


def test_it_sleeps_until_it_is_woken_or_its_time_is_over() -> None:
    with tampu.open("memory://") as store:
        pause = _pause(store, [], "jobs")
        assert (pause.seconds > 50, pause.empty, pause.full) == (True, [("default", "jobs")], [])


def test_at_a_used_up_rate_it_sleeps_until_the_next_claim_is_allowed() -> None:
    with tampu.open("memory://") as store:
        store.queues.put("jobs", rate=2)
        pause = _pause(store, RetryLater(400_000), "jobs", "more")
        assert (pause.seconds, pause.empty) == (0.4, [("default", "more")])
        assert _pause(store, [], "jobs").empty == [("default", "jobs")], "nothing is ready, whatever the rate"


def test_at_a_full_queue_it_is_woken_and_also_looks_once_a_second() -> None:
    with tampu.open("memory://") as store:
        store.queues.put("jobs", max_in_flight=3)
        pause = _pause(store, [], "jobs")
        assert (pause.seconds, pause.empty, pause.full) == (1.0, [], [(("default", "jobs"), 3)])


def test_a_place_that_came_free_before_it_slept_is_not_slept_through() -> None:
    with tampu.open("memory://") as store:
        store.queues.put("jobs", max_in_flight=1)
        store.publish_many("jobs", range(2))
        (lease,) = store.claim("jobs")
        pause = _pause(store, [], "jobs")
        core: Any = access.core(store)
        assert not core.arrived_since_claim(pause)
        store.ack(lease)
        assert core.arrived_since_claim(pause)
