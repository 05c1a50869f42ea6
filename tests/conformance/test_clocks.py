"""A clock that was ahead for a moment and is right again: rates and retention do not stop until that time."""

import pytest

from tampu import NewMessage
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, payloads

YEAR = 365 * 86_400


def test_the_rate_of_a_queue_goes_on_when_the_clock_is_set_right(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", rate=1, burst=1)
    store.publish_many("jobs", range(3))
    harness.clock.advance(3600)
    assert payloads(store.claim("jobs", limit=5, lease=YEAR)) == [0]
    harness.clock.advance(-3600)
    assert store.claim("jobs", limit=5) == []
    harness.clock.advance(1)
    assert payloads(store.claim("jobs", limit=5, lease=YEAR)) == [1]
    assert store.claim("jobs", limit=5) == []
    harness.clock.advance(1)
    assert payloads(store.claim("jobs", limit=5, lease=YEAR)) == [2]


@pytest.mark.parametrize("limits", [{}, {"group_concurrency": 3}])
def test_the_rate_of_a_group_goes_on_when_the_clock_is_set_right(
    store: Store, harness: Harness, limits: dict[str, object]
) -> None:
    store.queues.put("jobs", group_rate=1, group_burst=1, **limits)
    store.publish_many("jobs", [NewMessage(n, group="a") for n in range(3)])
    harness.clock.advance(3600)
    assert payloads(store.claim("jobs", limit=5, lease=YEAR)) == [0]
    harness.clock.advance(-3600)
    harness.trim()
    for n in (1, 2):
        assert store.claim("jobs", limit=5) == []
        harness.clock.advance(1)
        harness.sweep()
        assert payloads(store.claim("jobs", limit=5, lease=YEAR)) == [n]


def test_a_new_message_of_a_group_waits_no_longer_than_its_rate_says(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", group_rate=1, group_burst=1)
    store.publish("jobs", 0, group="a")
    harness.clock.advance(3600)
    (lease,) = store.claim("jobs", lease=YEAR)
    store.ack(lease)
    harness.clock.advance(-3600)
    assert store.publish("jobs", 1, group="a").state == "delayed"
    harness.clock.advance(1)
    harness.sweep()
    assert payloads(store.claim("jobs", limit=5)) == [1]


def test_a_clock_that_is_right_leaves_the_rate_alone(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", group_rate=0.1, group_burst=2)
    store.publish_many("jobs", [NewMessage(n, group="a") for n in range(4)])
    assert payloads(store.claim("jobs", limit=5, lease=YEAR)) == [0, 1]
    harness.trim()
    assert counts(store, "jobs") == {"leased": 2, "delayed": 2}
    for n in (2, 3):
        harness.clock.advance(9)
        harness.trim()
        harness.sweep()
        assert store.claim("jobs", limit=5) == []
        harness.clock.advance(1)
        harness.sweep()
        assert payloads(store.claim("jobs", limit=5, lease=YEAR)) == [n]


def test_retention_goes_on_past_what_was_written_ahead_of_time(store: Store, harness: Harness) -> None:
    def work(times: int = 1) -> None:
        for _ in range(times):
            store.publish("jobs", 1)
            store.ack(store.claim("jobs")[0])

    ahead = 3
    work()
    harness.clock.advance(YEAR)
    work(ahead)
    harness.clock.advance(-YEAR)
    harness.trim()
    assert (store.stats("jobs").done, len(store.journal().transitions)) == (4, 12), "nothing tells how old they are"
    for _ in range(40):
        harness.clock.advance(86_400)
        work()
        harness.trim()
    week = 8  # the days that retention keeps
    assert store.stats("jobs").done <= week + ahead, "only what ended ahead of time may stay"
    assert len(store.journal(limit=1000).transitions) <= 3 * week
