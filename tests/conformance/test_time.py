"""What happens with time: delayed messages become ready, TTLs expire; and what must never be removed."""

from datetime import timedelta

import pytest

from tampu import Nack, NewMessage, Release, State
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, payloads, verbs

HOURS_48 = 48 * 3600


def test_delayed_work_is_ready_when_due_and_not_before(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1, delay=60)
    harness.clock.advance(59.999)
    assert harness.sweep() == 0
    assert store.claim("emails") == []
    harness.clock.advance(0.001)
    assert harness.sweep() == 1
    assert store.get(message.id).state is State.READY
    assert store.get(message.id).run_at is None
    assert verbs(store, message.id) == ["publish", "promote"]


def test_durations_may_be_texts_with_units_as_in_the_command(store: Store, harness: Harness) -> None:
    store.queues.put("emails", retention="2h", backoff="5m")
    assert store.queues.get("emails").retention == 7200
    published = [
        store.publish("emails", 1, delay="1m30s", ttl="1h"),
        *store.publish_many("emails", [NewMessage(1, delay="90"), NewMessage(1, delay=timedelta(seconds=90))]),
    ]
    assert {message.run_us for message in published} == {harness.clock.now() + 90_000_000}
    assert published[0].expires_us == harness.clock.now() + 3600_000_000
    harness.clock.advance("90s")
    first, second, third = store.claim("emails", limit=3, lease="10m", wait="0s")
    now = harness.clock.time
    assert first.until - now == timedelta(minutes=10)
    extended = store.extend(first, "1h")
    assert extended is not None
    assert extended.until - now == timedelta(hours=1)
    store.settle([Nack(first, "x"), Nack(second, "x", "2m"), Release(third, "3m")])
    waits = [(store.get(lease.id).run_at or now) - now for lease in (first, second, third)]
    assert waits == [timedelta(minutes=5), timedelta(minutes=2), timedelta(minutes=3)]
    made = store.schedules.put("nightly", queue="emails", every="1d", jitter="10m", delay="5s", ttl="1w")
    assert (made.every, made.jitter) == (timedelta(days=1), timedelta(minutes=10))
    assert [made.message.delay, made.message.ttl] == [timedelta(seconds=5), timedelta(weeks=1)]


def test_more_due_work_than_one_step_all_comes(store: Store, harness: Harness) -> None:
    store.publish_many("emails", [NewMessage(n, delay=1 + n / 1000) for n in range(2300)])
    harness.clock.advance(10)
    assert harness.sweep() == 2300
    assert payloads(store.claim("emails", limit=5000)) == list(range(2300))


def test_long_delays_and_old_dead_letters_are_never_removed(store: Store, harness: Harness) -> None:
    """Retention is for what has ended: a 48-hour delay, backlog, lease, hold and dead letter are all still there."""
    store.queues.put("emails", retention=60, result_ttl=60, idempotency_window=60)
    kept = [
        store.publish("emails", "dead"),
        store.publish("emails", "leased"),
        store.publish("emails", "backlog"),
        store.publish("emails", "delayed", delay=HOURS_48 + 1),
        store.publish("emails", "held", hold="a person"),
    ]
    store.reject(store.claim("emails", lease=HOURS_48 + 1)[0])
    store.claim("emails", lease=HOURS_48 + 1)
    for _ in range(48):
        harness.clock.advance(3600)
        harness.sweep()
        harness.trim(journal=60)
    states = [store.get(m.id).state for m in kept]
    assert states == [State.DEAD, State.LEASED, State.READY, State.DELAYED, State.HELD]
    assert [store.get(m.id).payload for m in kept] == ["dead", "leased", "backlog", "delayed", "held"]


def test_no_live_message_is_dropped_however_many_there_are(store: Store) -> None:
    for start in range(0, 12_000, 4_000):
        store.publish_many("emails", range(start, start + 4_000))
    assert store.stats("emails").ready == 12_000
    seen: list[object] = []
    while leases := store.claim("emails", limit=5_000):
        seen += payloads(leases)
    assert seen == list(range(12_000))


@pytest.mark.parametrize("state", ["ready", "delayed", "held"])
def test_ttl_ends_waiting_messages(store: Store, harness: Harness, state: str) -> None:
    message = store.publish(
        "emails", 1, ttl=60, delay=3600 if state == "delayed" else None, hold="x" if state == "held" else None
    )
    assert message.state == state
    assert message.expires_at == harness.clock.time + timedelta(seconds=60)
    harness.clock.advance(59.999)
    assert harness.sweep() == 0
    harness.clock.advance(0.001)
    harness.sweep()
    seen = store.get(message.id)
    assert (seen.state, seen.ended_at) == (State.EXPIRED, harness.clock.time)
    assert counts(store, "emails") == {"expired": 1}
    assert verbs(store, message.id) == ["publish", "expire"]


def test_claim_never_delivers_an_expired_message_even_before_a_sweep(store: Store, harness: Harness) -> None:
    store.publish("emails", "old", ttl=60)
    store.publish("emails", "new")
    harness.clock.advance(60)
    assert payloads(store.claim("emails", limit=5)) == ["new"]
    assert counts(store, "emails") == {"expired": 1, "leased": 1}


def test_expired_messages_between_others_do_not_cut_a_claim_short(store: Store, harness: Harness) -> None:
    store.publish_many("emails", [NewMessage(n, ttl=10 if n % 2 == 0 else None) for n in range(6)])
    assert len(store.claim("emails", limit=6, lease=20)) == 6
    harness.clock.advance(20)
    assert payloads(store.claim("emails", limit=3)) == [1, 3, 5]


def test_delayed_work_that_expires_as_it_falls_due_is_expired(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1, ttl=60, delay=60)
    harness.clock.advance(60)
    assert store.claim("emails") == []
    assert store.get(message.id).state is State.EXPIRED


def test_ttl_does_not_end_leased_work(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1, ttl=60)
    lease = store.claim("emails", lease=3600)[0]
    harness.clock.advance(600)
    harness.sweep()
    assert store.get(message.id).state is State.LEASED
    store.ack(lease)
    assert store.get(message.id).state is State.DONE


@pytest.mark.parametrize("way", ["nack", "nack now", "release", "run out"])
def test_work_that_comes_back_past_its_ttl_expires(store: Store, harness: Harness, way: str) -> None:
    message = store.publish("emails", 1, ttl=60)
    lease = store.claim("emails", lease=100)[0]
    harness.clock.advance(100)
    if way == "release":
        store.release(lease)
    elif way != "run out":
        store.nack(lease, delay=0 if way == "nack now" else 3600)
    assert store.claim("emails") == []
    harness.sweep()
    assert store.get(message.id).state is State.EXPIRED


def test_work_that_comes_back_before_its_ttl_still_expires_at_it(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1, ttl=60)
    store.release(store.claim("emails")[0])
    harness.clock.advance(60)
    harness.sweep()
    assert store.get(message.id).state is State.EXPIRED


def test_ttl_of_the_queue_counts_for_messages_without_their_own(store: Store, harness: Harness) -> None:
    store.queues.put("emails", ttl=60)
    own = store.publish("emails", 1, ttl=3600)
    plain = store.publish("emails", 2)
    many = store.publish_many("emails", [3])[0]
    harness.clock.advance(60)
    harness.sweep()
    assert [store.get(m.id).state for m in (own, plain, many)] == [State.READY, State.EXPIRED, State.EXPIRED]


def test_no_ttl_is_for_ever(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1)
    harness.clock.advance(50 * 365 * 86_400)
    harness.sweep()
    harness.trim()
    assert store.claim("emails")[0].id == message.id


def test_a_dead_letter_does_not_expire_and_can_be_replayed_after_its_ttl(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1, ttl=60)
    store.reject(store.claim("emails")[0])
    harness.clock.advance(3600)
    harness.sweep()
    assert store.get(message.id).state is State.DEAD
    assert len(store.replay("emails", ids=[message.id])) == 1
    harness.sweep()
    assert store.claim("emails")[0].id == message.id


def test_sweeping_twice_moves_nothing_twice(store: Store, harness: Harness) -> None:
    store.publish("emails", 1, delay=5)
    store.publish("emails", 2, ttl=5)
    store.publish("emails", 3)
    store.claim("emails", limit=1, lease=5)
    harness.clock.advance(5)
    harness.sweep()
    with harness.unchanged(store):
        assert harness.sweep() == 0


def test_a_clock_that_is_set_back_loses_nothing(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1)
    lease = store.claim("emails", lease=30)[0]
    harness.clock.advance(-3600)
    harness.sweep()
    assert store.get(message.id).state is State.LEASED
    store.nack(lease, delay=10)
    harness.clock.advance(10)
    assert store.claim("emails")[0].attempt == 2


def test_a_claim_gets_past_a_large_backlog_that_has_expired(store: Store, harness: Harness) -> None:
    store.publish_many("emails", [NewMessage(n, ttl=5) for n in range(2500)])
    store.publish("emails", "live")
    harness.clock.advance(6)
    assert [lease.payload for lease in store.claim("emails", limit=10)] == ["live"]
    assert counts(store, "emails") == {"expired": 2500, "leased": 1}
