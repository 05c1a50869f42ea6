"""Results: what the worker gave to ack, kept as long as the queue says."""

import pytest

from tampu import Ack, PayloadTooLarge, State
from tampu.broker.store import Store
from tests.conformance.harness import Harness


def test_result_comes_back_equal(store: Store) -> None:
    results: list[object] = [
        0, False, "", [], {}, 1.5, "größe", b"\x00\xff", {"a": [1, {"b": None}]}, -(2**63), 2**64 - 1,
    ]  # fmt: skip
    for result in results:
        message = store.publish("emails", 1)
        store.ack(store.claim("emails")[0], result=result)
        seen = store.get(message.id).result
        assert seen == result
        assert type(seen) is type(result)


def test_without_a_result_there_is_none(store: Store) -> None:
    message = store.publish("emails", 1)
    assert store.get(message.id).result is None
    store.ack(store.claim("emails")[0])
    assert store.get(message.id).result is None


def test_result_is_kept_for_result_ttl(store: Store, harness: Harness) -> None:
    store.queues.put("emails", result_ttl=60, retention=3600)
    message = store.publish("emails", 1)
    store.settle([Ack(store.claim("emails")[0], result="r")])
    harness.clock.advance(59.999)
    harness.trim()
    assert store.get(message.id).result == "r"
    harness.clock.advance(0.001)
    assert store.get(message.id).result is None
    assert harness.trim() == 1
    assert store.get(message.id).state is State.DONE


def test_result_ttl_of_zero_keeps_no_result(store: Store) -> None:
    store.queues.put("emails", result_ttl=0)
    message = store.publish("emails", 1)
    store.ack(store.claim("emails")[0], result="r")
    assert store.get(message.id).result is None


def test_repeating_the_ack_with_another_result_keeps_the_first(store: Store) -> None:
    message = store.publish("emails", 1)
    lease = store.claim("emails")[0]
    store.ack(lease, result="first")
    store.ack(lease, result="second")
    assert store.get(message.id).result == "first"


def test_a_result_over_the_limit_is_refused_and_the_lease_stays(store: Store) -> None:
    store.queues.put("emails", max_payload=100)
    message = store.publish("emails", 1)
    lease = store.claim("emails")[0]
    with pytest.raises(PayloadTooLarge):
        store.ack(lease, result="x" * 200)
    assert store.get(message.id).state is State.LEASED
    store.ack(lease, result="short")


def test_result_survives_opening_again(harness: Harness) -> None:
    store = harness.open()
    message = store.publish("emails", 1)
    store.ack(store.claim("emails")[0], result={"sent": True})
    assert harness.reopen().get(message.id).result == {"sent": True}
