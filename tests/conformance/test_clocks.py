"""A clock that was ahead for a moment and was set right: rates do not stand still until that time."""

import pytest

from tampu import NewMessage
from tampu.broker.queue import Queue
from tests.conformance.house import House, counts, payloads

YEAR = 365 * 86_400


def test_the_rate_of_a_queue_goes_on_when_the_clock_is_set_right(q: Queue, house: House) -> None:
    q.queues.put("jobs", rate=1, burst=1)
    q.publish_many("jobs", range(3))
    house.clock.advance(3600)
    assert payloads(q.claim("jobs", limit=5, lease=YEAR)) == [0]
    house.clock.advance(-3600)
    assert q.claim("jobs", limit=5) == []
    house.clock.advance(1)
    assert payloads(q.claim("jobs", limit=5, lease=YEAR)) == [1]
    assert q.claim("jobs", limit=5) == []
    house.clock.advance(1)
    assert payloads(q.claim("jobs", limit=5, lease=YEAR)) == [2]


@pytest.mark.parametrize("limits", [{}, {"group_concurrency": 3}])
def test_the_rate_of_a_group_goes_on_when_the_clock_is_set_right(
    q: Queue, house: House, limits: dict[str, object]
) -> None:
    q.queues.put("jobs", group_rate=1, group_burst=1, **limits)
    q.publish_many("jobs", [NewMessage(n, group="a") for n in range(3)])
    house.clock.advance(3600)
    assert payloads(q.claim("jobs", limit=5, lease=YEAR)) == [0]
    house.clock.advance(-3600)
    house.trim()
    for n in (1, 2):
        assert q.claim("jobs", limit=5) == []
        house.clock.advance(1)
        house.sweep()
        assert payloads(q.claim("jobs", limit=5, lease=YEAR)) == [n]


def test_a_new_message_of_a_group_waits_no_longer_than_its_rate_says(q: Queue, house: House) -> None:
    q.queues.put("jobs", group_rate=1, group_burst=1)
    q.publish("jobs", 0, group="a")
    house.clock.advance(3600)
    (lease,) = q.claim("jobs", lease=YEAR)
    q.ack(lease)
    house.clock.advance(-3600)
    assert q.publish("jobs", 1, group="a").state == "delayed"
    house.clock.advance(1)
    house.sweep()
    assert payloads(q.claim("jobs", limit=5)) == [1]


def test_a_rate_that_is_kept_is_not_touched(q: Queue, house: House) -> None:
    q.queues.put("jobs", group_rate=0.1, group_burst=2)
    q.publish_many("jobs", [NewMessage(n, group="a") for n in range(4)])
    assert payloads(q.claim("jobs", limit=5, lease=YEAR)) == [0, 1]
    house.trim()
    assert counts(q, "jobs") == {"leased": 2, "delayed": 2}
    for n in (2, 3):
        house.clock.advance(9)
        house.trim()
        house.sweep()
        assert q.claim("jobs", limit=5) == []
        house.clock.advance(1)
        house.sweep()
        assert payloads(q.claim("jobs", limit=5, lease=YEAR)) == [n]
