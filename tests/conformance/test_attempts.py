"""Exact attempts: max_attempts = N is at most N deliveries, and the history of each."""

import itertools

import pytest

from tampu import InvalidMessage, NewMessage, State
from tampu.broker.store import Store
from tests.conformance.harness import Harness


def test_max_attempts_gives_exactly_that_many_deliveries_whichever_way_each_ended(
    store: Store, harness: Harness
) -> None:
    for ways in itertools.product(["nack", "nack now", "run out"], repeat=3):
        message = store.publish("emails", 1, max_attempts=3)
        for number, way in enumerate(ways, start=1):
            (lease,) = store.claim("emails", lease=30)
            assert (lease.id, lease.attempt) == (message.id, number), ways
            if way == "nack":
                store.nack(lease, error="x", delay=1)
            elif way == "nack now":
                store.nack(lease, error="x", delay=0)
            harness.clock.advance(3600)
        assert store.claim("emails") == [], ways
        harness.sweep()
        seen = store.get(message.id)
        assert (seen.state, seen.attempts) == (State.DEAD, 3), ways
        assert seen.reason == ("lease_expired" if ways[-1] == "run out" else "retries_exhausted"), ways
        assert [f.attempt for f in seen.failures] == [1, 2, 3], ways


def test_a_message_that_always_fails_is_delivered_max_attempts_times(store: Store, harness: Harness) -> None:
    queues = {f"emails{most}": most for most in (1, 2, 5, 10)}
    deliveries = dict.fromkeys(queues, 0)
    for queue, most in queues.items():
        store.queues.put(queue, max_attempts=most, backoff=1)
        store.publish(queue, 1)
    for _ in range(13):
        for lease in store.claim(list(queues), limit=10):
            deliveries[lease.message.queue] += 1
            store.nack(lease)
        harness.clock.advance(60)
    assert deliveries == queues
    assert [store.stats(queue).dead for queue in queues] == [1] * len(queues)


def test_nack_before_the_last_attempt_is_retried_and_at_the_last_is_dead(store: Store) -> None:
    message = store.publish("emails", 1, max_attempts=2)
    assert store.nack(store.claim("emails")[0], delay=0).state is State.READY
    assert store.nack(store.claim("emails")[0], delay=0).state is State.DEAD
    assert store.get(message.id).reason == "retries_exhausted"


def test_release_never_uses_up_an_attempt(store: Store) -> None:
    message = store.publish("emails", 1, max_attempts=1)
    for _ in range(10):
        lease = store.claim("emails")[0]
        assert lease.attempt == 1
        store.release(lease)
    assert store.get(message.id).state is State.READY


def test_max_attempts_of_the_message_overrides_that_of_the_queue(store: Store) -> None:
    store.queues.put("emails", max_attempts=1)
    message = store.publish("emails", 1, max_attempts=2)
    store.nack(store.claim("emails")[0], delay=0)
    assert store.get(message.id).state is State.READY


def test_max_attempts_is_fixed_when_the_message_is_published(store: Store) -> None:
    store.queues.put("emails", max_attempts=2)
    message = store.publish("emails", 1)
    store.queues.put("emails", max_attempts=1)
    assert store.get(message.id).max_attempts == 2
    assert store.nack(store.claim("emails")[0], delay=0).state is State.READY


def test_history_keeps_every_failed_attempt_with_its_error(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1)
    first = store.claim("emails", worker="w1")[0]
    try:
        raise ValueError("no such mailbox")
    except ValueError as error:
        store.nack(first, error=error, delay=0)
    at_first = harness.clock.time
    harness.clock.advance(5)
    store.nack(store.claim("emails", worker="w2")[0], error="second", traceback="line 1\nline 2", delay=0)
    store.reject(store.claim("emails", worker="w3")[0], reason="decode_failed", error="third")
    one, two, three = store.get(message.id).failures
    assert (one.attempt, one.outcome, one.worker, one.at) == (1, "nack", "w1", at_first)
    assert one.error == "ValueError: no such mailbox"
    assert one.traceback is not None
    assert "raise ValueError" in one.traceback
    assert (two.attempt, two.error, two.traceback) == (2, "second", "line 1\nline 2")
    assert (three.attempt, three.outcome, three.error) == (3, "reject", "third")
    assert store.get(message.id).last_error == "third"


def test_very_long_errors_are_shortened_not_refused(store: Store) -> None:
    message = store.publish("emails", 1)
    store.nack(store.claim("emails")[0], error="e" * 1_000_000, traceback="t" * 1_000_000 + "the end")
    (failure,) = store.get(message.id).failures
    assert failure.error is not None
    assert failure.traceback is not None
    assert 1000 < len(failure.error) < 100_000
    assert 1000 < len(failure.traceback) < 100_000
    assert failure.traceback.endswith("the end")


BACKOFFS: list[tuple[object, list[int]]] = [
    (7, [7, 7, 7]),
    ([1, 5], [1, 5, 5]),
    ({"kind": "fixed", "base": 3, "jitter": "none"}, [3, 3, 3]),
    ({"kind": "linear", "base": 3, "jitter": "none"}, [3, 6, 9]),
    ({"kind": "exponential", "base": 3, "jitter": "none"}, [3, 6, 12]),
    ({"kind": "exponential", "base": 100, "cap": 150, "jitter": "none"}, [100, 150, 150]),
]


def test_backoff_waits_as_the_queue_says(store: Store, harness: Harness) -> None:
    for n, (backoff, waits) in enumerate(BACKOFFS):
        store.queues.put(f"emails{n}", backoff=backoff)
        message = store.publish(f"emails{n}", 1)
        for wait in waits:
            store.nack(store.claim(f"emails{n}")[0])
            run_at = store.get(message.id).run_at
            assert run_at is not None
            assert (run_at - harness.clock.time).total_seconds() == wait, backoff
            harness.clock.advance(wait)


@pytest.mark.parametrize(("jitter", "least"), [("full", 0), ("equal", 50)])
def test_jitter_stays_within_its_bounds_and_spreads(store: Store, harness: Harness, jitter: str, least: int) -> None:
    store.queues.put("emails", backoff={"kind": "fixed", "base": 100, "cap": 100, "jitter": jitter})
    store.publish_many("emails", range(50))
    for lease in store.claim("emails", limit=50):
        store.nack(lease)
    waits = set()
    for message in store.messages("emails"):
        assert message.run_at is not None or least == 0
        waits.add(0 if message.run_at is None else (message.run_at - harness.clock.time).total_seconds())
    assert least <= min(waits) < max(waits) <= 100
    assert len(waits) > 25


@pytest.mark.parametrize("most", [1, 2, 7])
def test_a_nack_may_set_the_max_attempts_of_its_message(store: Store, harness: Harness, most: int) -> None:
    store.queues.put("emails", max_attempts=3)
    message = store.publish("emails", 1, delay=0, headers={"a": "b"})
    for number in range(1, most + 1):
        (lease,) = store.claim("emails")
        assert lease.attempt == number
        outcome = store.nack(lease, error="x", delay=0, max_attempts=most)
        assert store.nack(lease, error="x", delay=0, max_attempts=most) == outcome
        assert store.get(message.id).max_attempts == most
    assert store.claim("emails") == []
    seen = store.get(message.id)
    assert (seen.state, seen.reason, seen.attempts) == (State.DEAD, "retries_exhausted", most)
    assert (seen.payload, seen.headers) == (1, {"a": "b"})


def test_max_attempts_of_a_nack_holds_for_leases_that_run_out_later(store: Store, harness: Harness) -> None:
    store.queues.put("emails", max_attempts=2)
    longer, shorter = store.publish_many("emails", [1, 2])
    for lease, most in zip(store.claim("emails", limit=2), (4, 1), strict=True):
        store.nack(lease, error="x", delay=0, max_attempts=most)
    deliveries = 1
    while store.claim("emails", lease=30):
        deliveries += 1
        harness.clock.advance(31)
        harness.sweep()
    assert deliveries == 4
    assert [store.get(m.id).reason for m in (longer, shorter)] == ["lease_expired", "retries_exhausted"]


def test_max_attempts_of_a_nack_must_be_a_number_that_a_message_may_have(store: Store) -> None:
    store.publish("emails", 1)
    (lease,) = store.claim("emails")
    for most in (0, 1001, "3", True, 1.5):
        with pytest.raises(InvalidMessage) as refused:
            store.nack(lease, max_attempts=most)  # type: ignore[arg-type]  # that is the point
        assert refused.value.field == "max_attempts"
    store.ack(lease)


def test_a_message_shows_whether_its_publisher_set_max_attempts(store: Store) -> None:
    store.publish_many("emails", [1, NewMessage(2, type="t"), NewMessage(3, max_attempts=5), NewMessage(4, group="g")])
    assert [lease.message.body.own_max_attempts is not None for lease in store.claim("emails", limit=4)] == [
        False,
        False,
        True,
        False,
    ]
