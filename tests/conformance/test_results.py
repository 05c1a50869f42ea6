"""Results: what ack was given, for as long as the queue keeps it."""

import pytest

from tampu import Ack, PayloadTooLarge, State
from tampu.broker.queue import Queue
from tests.conformance.house import House


@pytest.mark.parametrize(
    "result", [0, False, "", [], {}, 1.5, "größe", b"\x00\xff", {"a": [1, {"b": None}]}, -(2**63), 2**64 - 1]
)
def test_result_comes_back_equal(q: Queue, result: object) -> None:
    message = q.publish("emails", 1)
    q.ack(q.claim("emails")[0], result=result)
    seen = q.get(message.id).result
    assert seen == result
    assert type(seen) is type(result)


def test_without_a_result_there_is_none(q: Queue) -> None:
    message = q.publish("emails", 1)
    assert q.get(message.id).result is None
    q.ack(q.claim("emails")[0])
    assert q.get(message.id).result is None


def test_result_is_kept_for_result_ttl(q: Queue, house: House) -> None:
    q.queues.put("emails", result_ttl=60, retention=3600)
    message = q.publish("emails", 1)
    q.settle([Ack(q.claim("emails")[0], result="r")])
    house.clock.advance(59.999)
    house.trim()
    assert q.get(message.id).result == "r"
    house.clock.advance(0.001)
    assert q.get(message.id).result is None
    assert house.trim() == 1
    assert q.get(message.id).state is State.DONE


def test_result_ttl_of_zero_keeps_no_result(q: Queue) -> None:
    q.queues.put("emails", result_ttl=0)
    message = q.publish("emails", 1)
    q.ack(q.claim("emails")[0], result="r")
    assert q.get(message.id).result is None


def test_repeating_the_ack_with_another_result_keeps_the_first(q: Queue) -> None:
    message = q.publish("emails", 1)
    lease = q.claim("emails")[0]
    q.ack(lease, result="first")
    q.ack(lease, result="second")
    assert q.get(message.id).result == "first"


def test_a_result_over_the_limit_is_refused_and_the_lease_stays(q: Queue) -> None:
    q.queues.put("emails", max_payload=100)
    message = q.publish("emails", 1)
    lease = q.claim("emails")[0]
    with pytest.raises(PayloadTooLarge):
        q.ack(lease, result="x" * 200)
    assert q.get(message.id).state is State.LEASED
    q.ack(lease, result="short")


def test_result_survives_opening_again(house: House) -> None:
    q = house.open()
    message = q.publish("emails", 1)
    q.ack(q.claim("emails")[0], result={"sent": True})
    assert house.reopen().get(message.id).result == {"sent": True}
