"""What time alone brings about: delays falling due, TTLs passing; and what time must never take away."""

from datetime import timedelta

import pytest

from tampu import NewMessage, State
from tampu.broker.queue import Queue
from tests.conformance.house import House, counts, payloads, verbs

HOURS_48 = 48 * 3600


def test_delayed_work_is_ready_when_due_and_not_before(q: Queue, house: House) -> None:
    message = q.publish("emails", 1, delay=60)
    house.clock.advance(59.999)
    assert house.sweep() == 0
    assert q.claim("emails") == []
    house.clock.advance(0.001)
    assert house.sweep() == 1
    assert q.get(message.id).state is State.READY
    assert q.get(message.id).run_at is None
    assert verbs(q, message.id) == ["publish", "promote"]


def test_more_due_work_than_one_step_all_comes(q: Queue, house: House) -> None:
    q.publish_many("emails", [NewMessage(n, delay=1 + n / 1000) for n in range(2300)])
    house.clock.advance(10)
    assert house.sweep() == 2300
    assert payloads(q.claim("emails", limit=5000)) == list(range(2300))


def test_long_delays_and_old_dead_letters_are_never_removed(q: Queue, house: House) -> None:
    """Retention is for what has ended: a 48-hour delay, backlog, lease, hold and dead letter are all still there."""
    q.queues.put("emails", retention=60, result_ttl=60, idempotency_window=60)
    kept = [
        q.publish("emails", "dead"),
        q.publish("emails", "leased"),
        q.publish("emails", "backlog"),
        q.publish("emails", "delayed", delay=HOURS_48 + 1),
        q.publish("emails", "held", hold="a person"),
    ]
    q.reject(q.claim("emails", lease=HOURS_48 + 1)[0])
    q.claim("emails", lease=HOURS_48 + 1)
    for _ in range(48):
        house.clock.advance(3600)
        house.sweep()
        house.trim(journal=60)
    states = [q.get(m.id).state for m in kept]
    assert states == [State.DEAD, State.LEASED, State.READY, State.DELAYED, State.HELD]
    assert [q.get(m.id).payload for m in kept] == ["dead", "leased", "backlog", "delayed", "held"]


def test_no_live_message_is_dropped_however_many_there_are(q: Queue) -> None:
    for start in range(0, 12_000, 4_000):
        q.publish_many("emails", range(start, start + 4_000))
    assert q.stats("emails").ready == 12_000
    seen: list[object] = []
    while leases := q.claim("emails", limit=5_000):
        seen += payloads(leases)
    assert seen == list(range(12_000))


@pytest.mark.parametrize("state", ["ready", "delayed", "held"])
def test_ttl_ends_what_waits(q: Queue, house: House, state: str) -> None:
    message = q.publish(
        "emails", 1, ttl=60, delay=3600 if state == "delayed" else None, hold="x" if state == "held" else None
    )
    assert message.state == state
    assert message.expires_at == house.clock.time + timedelta(seconds=60)
    house.clock.advance(59.999)
    assert house.sweep() == 0
    house.clock.advance(0.001)
    house.sweep()
    seen = q.get(message.id)
    assert (seen.state, seen.ended_at) == (State.EXPIRED, house.clock.time)
    assert counts(q, "emails") == {"expired": 1}
    assert verbs(q, message.id) == ["publish", "expire"]


def test_claim_never_gives_an_expired_message_also_when_nobody_swept(q: Queue, house: House) -> None:
    q.publish("emails", "old", ttl=60)
    q.publish("emails", "new")
    house.clock.advance(60)
    assert payloads(q.claim("emails", limit=5)) == ["new"]
    assert counts(q, "emails") == {"expired": 1, "leased": 1}


def test_delayed_work_that_expires_as_it_falls_due_is_expired(q: Queue, house: House) -> None:
    message = q.publish("emails", 1, ttl=60, delay=60)
    house.clock.advance(60)
    assert q.claim("emails") == []
    assert q.get(message.id).state is State.EXPIRED


def test_ttl_does_not_end_leased_work(q: Queue, house: House) -> None:
    message = q.publish("emails", 1, ttl=60)
    lease = q.claim("emails", lease=3600)[0]
    house.clock.advance(600)
    house.sweep()
    assert q.get(message.id).state is State.LEASED
    q.ack(lease)
    assert q.get(message.id).state is State.DONE


@pytest.mark.parametrize("way", ["nack", "nack now", "release", "run out"])
def test_work_that_comes_back_past_its_ttl_expires(q: Queue, house: House, way: str) -> None:
    message = q.publish("emails", 1, ttl=60)
    lease = q.claim("emails", lease=100)[0]
    house.clock.advance(100)
    if way == "release":
        q.release(lease)
    elif way != "run out":
        q.nack(lease, delay=0 if way == "nack now" else 3600)
    assert q.claim("emails") == []
    house.sweep()
    assert q.get(message.id).state is State.EXPIRED


def test_work_that_comes_back_before_its_ttl_still_expires_at_it(q: Queue, house: House) -> None:
    message = q.publish("emails", 1, ttl=60)
    q.release(q.claim("emails")[0])
    house.clock.advance(60)
    house.sweep()
    assert q.get(message.id).state is State.EXPIRED


def test_ttl_of_the_queue_holds_for_messages_without_their_own(q: Queue, house: House) -> None:
    q.queues.put("emails", ttl=60)
    own = q.publish("emails", 1, ttl=3600)
    plain = q.publish("emails", 2)
    many = q.publish_many("emails", [3])[0]
    house.clock.advance(60)
    house.sweep()
    assert [q.get(m.id).state for m in (own, plain, many)] == [State.READY, State.EXPIRED, State.EXPIRED]


def test_no_ttl_is_for_ever(q: Queue, house: House) -> None:
    message = q.publish("emails", 1)
    house.clock.advance(50 * 365 * 86_400)
    house.sweep()
    house.trim()
    assert q.claim("emails")[0].id == message.id


def test_a_dead_letter_does_not_expire_and_can_be_replayed_after_its_ttl(q: Queue, house: House) -> None:
    message = q.publish("emails", 1, ttl=60)
    q.reject(q.claim("emails")[0])
    house.clock.advance(3600)
    house.sweep()
    assert q.get(message.id).state is State.DEAD
    assert len(q.replay("emails", ids=[message.id])) == 1
    house.sweep()
    assert q.claim("emails")[0].id == message.id


def test_sweeping_twice_moves_nothing_twice(q: Queue, house: House) -> None:
    q.publish("emails", 1, delay=5)
    q.publish("emails", 2, ttl=5)
    q.publish("emails", 3)
    q.claim("emails", limit=1, lease=5)
    house.clock.advance(5)
    house.sweep()
    with house.unchanged(q):
        assert house.sweep() == 0


def test_time_going_back_loses_nothing(q: Queue, house: House) -> None:
    message = q.publish("emails", 1)
    lease = q.claim("emails", lease=30)[0]
    house.clock.advance(-3600)
    house.sweep()
    assert q.get(message.id).state is State.LEASED
    q.nack(lease, delay=10)
    house.clock.advance(10)
    assert q.claim("emails")[0].attempt == 2


def test_a_claim_gets_past_a_large_backlog_that_has_expired(q: Queue, house: House) -> None:
    q.publish_many("emails", [NewMessage(n, ttl=5) for n in range(2500)])
    q.publish("emails", "live")
    house.clock.advance(6)
    assert [lease.payload for lease in q.claim("emails", limit=10)] == ["live"]
    assert counts(q, "emails") == {"expired": 2500, "leased": 1}
