"""Removing a queue: what it takes with it, what it refuses, and how the queue comes back."""

import asyncio

import pytest

import tampu
from tampu import InvalidState, NotFound
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, payloads


def names(store: Store) -> list[str]:
    return [stats.queue for stats in store.stats()]


def test_a_removed_queue_is_gone_with_its_settings_and_ended_messages(store: Store) -> None:
    store.queues.put("emails", lease=77, max_attempts=1)
    store.publish_many("emails", range(3))
    done, dead, cancelled = store.claim("emails", limit=3)
    store.ack(done)
    store.nack(dead)
    store.cancel(cancelled.id)
    store.release(cancelled)
    store.publish("letters", 1)
    assert store.queues.remove("emails") == 3
    assert store.queues.list() == names(store) == ["letters"]
    assert store.queues.get("emails", inherited=False) == tampu.QueueConfig()
    for gone in (lambda: store.stats("emails"), lambda: store.queues.remove("emails"), lambda: store.get(dead.id)):
        with pytest.raises(NotFound):
            gone()
    assert [t.verb for t in store.journal().transitions if t.queue == "emails"][-3:] == ["purge"] * 3


def test_a_queue_with_waiting_messages_is_only_removed_by_force(store: Store, harness: Harness) -> None:
    store.publish("emails", 1)
    store.publish("emails", 2, delay=60)
    store.publish("emails", 3, hold="asks")
    with harness.unchanged(store), pytest.raises(InvalidState, match="3 messages of emails still wait"):
        store.queues.remove("emails")
    assert counts(store, "emails") == {"ready": 1, "delayed": 1, "held": 1}
    assert store.queues.remove("emails", force=True) == 3
    assert store.queues.list() == []


def test_a_queue_with_leased_messages_is_never_removed(store: Store, harness: Harness) -> None:
    store.publish_many("emails", range(2))
    (lease,) = store.claim("emails")
    for force in (False, True):
        with harness.unchanged(store), pytest.raises(InvalidState, match="1 messages of emails are leased"):
            store.queues.remove("emails", force=force)
    store.ack(lease)
    assert store.queues.remove("emails", force=True) == 2


def test_publishing_to_a_removed_queue_creates_it_again(store: Store) -> None:
    store.queues.put("emails", lease=77)
    store.queues.remove("emails")
    assert store.claim("emails") == []
    store.publish("emails", 1)
    assert store.queues.list() == names(store) == ["emails"]
    assert store.queues.get("emails").lease == 30
    assert payloads(store.claim("emails")) == [1]


def test_a_queue_that_was_created_again_can_be_removed_again(store: Store) -> None:
    for n in range(3):
        store.publish("emails", n)
        assert store.queues.remove("emails", force=True) == 1
        assert store.queues.list() == []


def test_settings_create_a_removed_queue_again(store: Store) -> None:
    store.publish("emails", 1)
    store.queues.remove("emails", force=True)
    store.queues.put("emails", lease=5)
    assert store.queues.list() == names(store) == ["emails"]
    assert store.stats("emails").depth == 0


def test_a_queue_that_does_not_exist_cannot_be_removed(store: Store) -> None:
    with pytest.raises(NotFound):
        store.queues.remove("nobody")


def test_a_queue_of_the_same_name_in_another_tenant_stays(harness: Harness) -> None:
    with harness.open() as one, harness.open(tenant="other") as two:
        one.publish("emails", 1)
        two.publish("emails", 2)
        one.queues.remove("emails", force=True)
        assert (one.queues.list(), two.queues.list()) == ([], ["emails"])
        assert payloads(two.claim("emails")) == [2]


def test_a_queue_that_is_used_again_stays_when_its_messages_are_gone(store: Store, harness: Harness) -> None:
    store.publish("emails", 1)
    store.queues.remove("emails", force=True)
    store.publish("emails", 2)
    harness.trim()
    store.purge("emails", state="ready")
    assert store.queues.list() == names(store) == ["emails"]


def test_removing_is_awaitable(harness: Harness) -> None:
    async def main() -> None:
        async with tampu.open_async(**harness.opening()) as store:
            await store.publish("emails", 1)
            assert await store.queues.remove("emails", force=True) == 1
            assert await store.queues.list() == []

    asyncio.run(main())
