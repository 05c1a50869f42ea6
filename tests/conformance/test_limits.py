"""Limits: depth, messages in flight, claim rate."""

import pytest

from tampu import Ack, NewMessage, QueueFull
from tampu.broker.queue import Queue
from tampu.engines.port import Claim, Later, Want
from tests.conformance.house import House, counts, inside


def test_max_depth_refuses_what_does_not_fit(q: Queue, house: House) -> None:
    q.queues.put("emails", max_depth=3)
    q.publish_many("emails", range(3))
    with house.unchanged(q), pytest.raises(QueueFull) as refused:
        q.publish("emails", 4)
    assert (refused.value.code, refused.value.field) == ("queue_full", "queue")


def test_max_depth_counts_all_that_has_not_ended(q: Queue) -> None:
    q.queues.put("emails", max_depth=4)
    q.publish("emails", "leased")
    lease = q.claim("emails")[0]
    q.publish("emails", "ready")
    q.publish("emails", "delayed", delay=60)
    q.publish("emails", "held", hold="x")
    with pytest.raises(QueueFull):
        q.publish("emails", "one too many")
    q.ack(lease)
    q.publish("emails", "fits again")


def test_dead_letters_take_no_room(q: Queue) -> None:
    q.queues.put("emails", max_depth=1)
    for n in range(3):
        q.publish("emails", n)
        q.reject(q.claim("emails")[0])
    assert counts(q, "emails") == {"dead": 3}


@pytest.mark.parametrize("special", [False, True], ids=["plain", "with keys"])
def test_queue_full_in_the_middle_of_a_batch_stores_nothing(q: Queue, house: House, special: bool) -> None:
    q.queues.put("emails", max_depth=5)
    q.publish_many("emails", range(2))
    batch = [NewMessage(n, key=f"k{n}" if special else None) for n in range(4)]
    with house.unchanged(q), pytest.raises(QueueFull):
        q.publish_many("emails", batch)
    q.publish_many("emails", batch[:3])
    assert q.stats("emails").depth == 5


def test_a_refused_batch_makes_no_queue(q: Queue, house: House) -> None:
    q.queues.put("*", max_depth=2)
    with house.unchanged(q), pytest.raises(QueueFull):
        q.publish_many("new", range(3))
    with house.unchanged(q), pytest.raises(QueueFull):
        q.publish_many("new", [NewMessage(n, key=str(n)) for n in range(3)])
    assert q.queues.list() == []


def test_raising_max_depth_lets_more_in(q: Queue) -> None:
    q.queues.put("emails", max_depth=1)
    q.publish("emails", 1)
    q.queues.put("emails", max_depth=0)
    q.publish_many("emails", range(100))


def test_max_in_flight_holds_across_workers(q: Queue, house: House) -> None:
    q.queues.put("emails", max_in_flight=5)
    q.publish_many("emails", range(20))
    other = house.open()
    first = q.claim("emails", limit=3, worker="w1")
    second = other.claim("emails", limit=10, worker="w2")
    assert (len(first), len(second)) == (3, 2)
    assert q.claim("emails", limit=10, worker="w3") == []
    other.ack(first[0])
    q.nack(second[0])
    assert len(q.claim("emails", limit=10)) == 2


def test_a_lease_that_ran_out_frees_its_place(q: Queue, house: House) -> None:
    q.queues.put("emails", max_in_flight=1)
    q.publish_many("emails", range(2))
    q.claim("emails", lease=10)
    assert q.claim("emails") == []
    house.clock.advance(10)
    assert len(q.claim("emails", limit=5)) == 1


def test_max_in_flight_is_per_queue(q: Queue) -> None:
    q.queues.put("emails", max_in_flight=1)
    q.publish_many("emails", range(3))
    q.publish_many("letters", range(3))
    leases = q.claim(["emails", "letters"], limit=10)
    assert [lease.queue for lease in leases] == ["emails", "letters", "letters", "letters"]


def test_rate_is_soft_fewer_come_back(q: Queue, house: House) -> None:
    q.queues.put("emails", rate=10)
    q.publish_many("emails", range(100))
    assert len(q.claim("emails", limit=50)) == 10
    assert q.claim("emails", limit=50) == []
    house.clock.advance(0.5)
    assert len(q.claim("emails", limit=50)) == 5
    house.clock.advance(3600)
    assert len(q.claim("emails", limit=50)) == 10


def test_rate_holds_across_workers(q: Queue, house: House) -> None:
    q.queues.put("emails", rate=4)
    q.publish_many("emails", range(100))
    other = house.open()
    got = 0
    for _ in range(10):
        got += len(q.claim("emails", limit=3)) + len(other.claim("emails", limit=3))
        house.clock.advance(1)
    assert 36 <= got <= 44


def test_rate_below_one_a_second_lets_one_through_at_a_time(q: Queue, house: House) -> None:
    q.queues.put("emails", rate=0.1)
    q.publish_many("emails", range(5))
    assert len(q.claim("emails", limit=5)) == 1
    house.clock.advance(9)
    assert q.claim("emails", limit=5) == []
    house.clock.advance(1)
    assert len(q.claim("emails", limit=5)) == 1


def test_burst_says_how_many_may_come_at_once(q: Queue, house: House) -> None:
    q.queues.put("emails", rate=1, burst=5)
    q.publish_many("emails", range(50))
    assert len(q.claim("emails", limit=50)) == 5
    house.clock.advance(2)
    assert len(q.claim("emails", limit=50)) == 2
    house.clock.advance(3600)
    assert len(q.claim("emails", limit=50)) == 5


def test_an_empty_claim_costs_no_rate(q: Queue) -> None:
    q.queues.put("emails", rate=2)
    for _ in range(10):
        assert q.claim("emails", limit=2) == []
    q.publish_many("emails", range(5))
    assert len(q.claim("emails", limit=5)) == 2


def test_limits_of_one_queue_do_not_bind_another(q: Queue) -> None:
    q.queues.put("slow", rate=1, max_in_flight=1, max_depth=1)
    q.publish_many("fast", range(30))
    assert len(q.claim(["slow", "fast"], limit=30)) == 30


def test_whoever_waits_is_told_of_a_lease_that_ended_in_a_limited_queue_only(
    q: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[tuple[str, str], int]] = []
    monkeypatch.setattr(inside(q).waiting, "wake", lambda queues: told.append(dict(queues)))
    q.queues.put("emails", max_in_flight=2)
    for queue in ("emails", "letters"):
        q.publish_many(queue, range(4))
        leases = q.claim(queue, limit=2)
        told.clear()
        q.settle([Ack(lease) for lease in leases])
        assert [found for found in told if found] == ([{("default", queue): 2}] if queue == "emails" else [])


def test_a_claim_that_finds_its_rate_used_up_knows_when_to_come_again(q: Queue, house: House) -> None:
    q.queues.put("emails", rate=4, burst=1)
    q.publish_many("emails", range(3))
    assert len(q.claim("emails", limit=3)) == 1
    call = Claim(q.tenant, [Want("emails", 30_000_000, rate=4, burst=1)], 1)
    for waited, left in ((0, 250_000), (0.1, 150_000), (0.1, 50_000)):
        house.clock.advance(waited)
        assert inside(q).engine.run([call]) == [Later(left)]
    house.clock.advance(0.05)
    assert len(q.claim("emails")) == 1
