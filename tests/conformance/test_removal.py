"""Removing a queue: what it takes with it, what it refuses, and how the queue comes back."""

import asyncio

import pytest

import tampu
from tampu import InvalidState, NotFound
from tampu.broker.queue import Queue
from tests.conformance.house import House, counts, payloads


def names(q: Queue) -> list[str]:
    return [stats.queue for stats in q.stats()]


def test_a_removed_queue_is_gone_with_its_settings_and_ended_messages(q: Queue) -> None:
    q.queues.put("emails", lease=77, max_attempts=1)
    q.publish_many("emails", range(3))
    done, dead, cancelled = q.claim("emails", limit=3)
    q.ack(done)
    q.nack(dead)
    q.cancel(cancelled.id)
    q.release(cancelled)
    q.publish("letters", 1)
    assert q.queues.remove("emails") == 3
    assert q.queues.list() == names(q) == ["letters"]
    assert q.queues.get("emails", inherited=False) == tampu.QueueConfig()
    for gone in (lambda: q.stats("emails"), lambda: q.queues.remove("emails"), lambda: q.get(dead.id)):
        with pytest.raises(NotFound):
            gone()
    assert [t.verb for t in q.journal().transitions if t.queue == "emails"][-3:] == ["purge"] * 3


def test_a_queue_with_messages_that_wait_is_only_removed_by_force(q: Queue, house: House) -> None:
    q.publish("emails", 1)
    q.publish("emails", 2, delay=60)
    q.publish("emails", 3, hold="asks")
    with house.unchanged(q), pytest.raises(InvalidState, match="3 messages of emails still wait"):
        q.queues.remove("emails")
    assert counts(q, "emails") == {"ready": 1, "delayed": 1, "held": 1}
    assert q.queues.remove("emails", force=True) == 3
    assert q.queues.list() == []


def test_a_queue_with_leased_messages_is_never_removed(q: Queue, house: House) -> None:
    q.publish_many("emails", range(2))
    (lease,) = q.claim("emails")
    for force in (False, True):
        with house.unchanged(q), pytest.raises(InvalidState, match="1 messages of emails are leased"):
            q.queues.remove("emails", force=force)
    q.ack(lease)
    assert q.queues.remove("emails", force=True) == 2


def test_publishing_to_a_removed_queue_makes_it_anew(q: Queue) -> None:
    q.queues.put("emails", lease=77)
    q.queues.remove("emails")
    assert q.claim("emails") == []
    q.publish("emails", 1)
    assert q.queues.list() == names(q) == ["emails"]
    assert q.queues.get("emails").lease == 30
    assert payloads(q.claim("emails")) == [1]


def test_a_queue_that_was_made_anew_can_be_removed_again(q: Queue) -> None:
    for n in range(3):
        q.publish("emails", n)
        assert q.queues.remove("emails", force=True) == 1
        assert q.queues.list() == []


def test_settings_make_a_removed_queue_anew(q: Queue) -> None:
    q.publish("emails", 1)
    q.queues.remove("emails", force=True)
    q.queues.put("emails", lease=5)
    assert q.queues.list() == names(q) == ["emails"]
    assert q.stats("emails").depth == 0


def test_a_queue_that_was_never_there_can_not_be_removed(q: Queue) -> None:
    with pytest.raises(NotFound):
        q.queues.remove("nobody")


def test_a_queue_of_the_same_name_in_another_tenant_stays(house: House) -> None:
    with house.open() as one, house.open(tenant="other") as two:
        one.publish("emails", 1)
        two.publish("emails", 2)
        one.queues.remove("emails", force=True)
        assert (one.queues.list(), two.queues.list()) == ([], ["emails"])
        assert payloads(two.claim("emails")) == [2]


def test_a_queue_that_is_used_again_stays_when_its_messages_are_gone(q: Queue, house: House) -> None:
    q.publish("emails", 1)
    q.queues.remove("emails", force=True)
    q.publish("emails", 2)
    house.trim()
    q.purge("emails", state="ready")
    assert q.queues.list() == names(q) == ["emails"]


def test_removing_is_awaitable(house: House) -> None:
    async def main() -> None:
        async with tampu.open_async(**house.opening()) as q:
            await q.publish("emails", 1)
            assert await q.queues.remove("emails", force=True) == 1
            assert await q.queues.list() == []

    asyncio.run(main())
