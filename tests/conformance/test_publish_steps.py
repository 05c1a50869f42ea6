"""Publish steps: policy between the validation of a batch and its commit, the same on every path and every engine."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest

import tampu
from tampu.broker import publish_steps
from tampu.broker.publish_steps import Batch, Draft
from tampu.broker.settings import Settings
from tampu.broker.store import Store
from tampu.model.message import Message
from tests.conformance.harness import Harness, counts


class Orders:
    """A policy, whole: orders need a total; large ones go first and to a queue of their own; accounting gets a copy."""

    def wants(self, queue: str, settings: Settings) -> bool:
        return queue == "orders"

    def apply(self, batch: Batch, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            total = draft.payload.get("total")
            if total is None:
                draft.refuse("an order needs a total", field="payload.total")
            draft.change(labels={**(draft.message.labels or {}), "checked": "yes"})
            if total > 100:
                draft.queue = "large-orders"
                draft.change(priority=total)
            batch.copy(draft, "accounting", "accounting", payload={"total": total})


@pytest.fixture(autouse=True)
def orders() -> Iterator[None]:
    with publish_steps.registered(Orders()):
        yield


def totals(store: Store, queue: str) -> list[int]:
    return [m.payload["total"] for m in store.messages(queue)] if queue in store.queues.list() else []


def look(message: Message) -> tuple[str, int, dict[str, str]]:
    return message.queue, message.priority, message.labels


def test_a_step_changes_routes_and_copies(store: Store) -> None:
    store.queues.put("accounting", max_attempts=9)
    small = store.publish("orders", {"total": 5}, labels={"shop": "1"})
    assert look(small) == ("orders", 0, {"shop": "1", "checked": "yes"})
    small, large = store.publish_many("orders", [{"total": 6}, tampu.NewMessage({"total": 500}, type="order.made")])
    assert look(small) == ("orders", 0, {"checked": "yes"})
    assert look(large) == ("large-orders", 500, {"checked": "yes"})
    assert look(store.get(large.id)) == look(large)
    assert (totals(store, "orders"), totals(store, "large-orders")) == ([5, 6], [500])
    assert totals(store, "accounting") == [5, 6, 500]
    copies = list(store.messages("accounting"))
    assert [(m.type, m.max_attempts) for m in copies] == [("message", 9), ("message", 9), ("order.made", 9)]
    store.publish("other", {"no": "order"})
    assert counts(store, "other") == {"ready": 1}


def test_a_message_that_a_step_refuses_is_not_stored_and_the_error_has_its_path(store: Store, harness: Harness) -> None:
    store.publish("orders", {"total": 1})
    with harness.unchanged(store):
        with pytest.raises(tampu.InvalidMessage, match="needs a total") as one:
            store.publish("orders", {"sum": 1})
        with pytest.raises(tampu.InvalidMessage, match="needs a total") as many:
            store.publish_many("orders", [{"total": 1}, {"sum": 1}])
    assert (one.value.field, many.value.field) == ("payload.total", "messages[1].payload.total")


def test_publishing_again_finds_the_message_and_its_copies(store: Store) -> None:
    id = str(uuid.uuid4())
    first = store.publish("orders", {"total": 200}, id=id)
    again = store.publish("orders", {"total": 200}, id=id)
    assert (again.id, again.duplicate, again.queue) == (first.id, True, "large-orders")
    for _ in range(2):
        store.publish("orders", {"total": 3}, idempotency_key="a")
    with pytest.raises(tampu.IdempotencyConflict):
        store.publish("orders", {"total": 4}, idempotency_key="a")
    assert (totals(store, "orders"), totals(store, "large-orders"), totals(store, "accounting")) == (
        [3],
        [200],
        [200, 3],
    )


def test_a_changed_message_is_validated_by_the_queue_it_goes_to(store: Store) -> None:
    store.queues.put("large-orders", max_payload=20)
    store.publish("orders", {"total": 101})
    with pytest.raises(tampu.PayloadTooLarge):
        store.publish("orders", {"total": 101, "why": "it is a large one"})
    store.close_queue("large-orders")
    with pytest.raises(tampu.QueueClosed, match="large-orders"):
        store.publish("orders", {"total": 101})
    assert totals(store, "accounting") == [101]


def test_a_message_and_its_copies_are_stored_together_or_not_at_all(transactional_harness: Harness) -> None:
    store = transactional_harness.open()
    store.queues.put("accounting", max_depth=2)
    store.publish_many("orders", [{"total": 1}, {"total": 2}])
    with transactional_harness.unchanged(store), pytest.raises(tampu.QueueFull, match="accounting"):
        store.publish_many("orders", [{"total": 3}, {"total": 300}])


def test_steps_run_for_tasks_and_transactions(transactional_harness: Harness) -> None:
    async def tasks() -> None:
        async with tampu.open_async(**transactional_harness.opening()) as store:
            made = await store.publish_many("orders", [{"total": 1}, {"total": 200}])
            assert [m.queue for m in made] == ["orders", "large-orders"]
            with pytest.raises(tampu.InvalidMessage, match="needs a total"):
                await store.publish("orders", {})

    asyncio.run(tasks())
    store = transactional_harness.open()
    store.publish("orders", {"total": 2})
    with contextlib.suppress(KeyError), store.transaction() as tx:
        tx.publish("orders", {"total": 3})
        raise KeyError
    with store.transaction() as tx:
        tx.publish("orders", {"total": 4})
    assert totals(store, "accounting")[-2:] == totals(store, "orders")[-2:] == [2, 4]


def test_schedules_publish_through_the_steps(store: Store, harness: Harness) -> None:
    store.schedules.put("daily", queue="orders", payload={"total": 7}, every=timedelta(days=1), missed="all")
    store.schedules.put("broken", queue="orders", payload={"sum": 7}, every=timedelta(days=1))
    for _ in range(3):
        harness.clock.advance(86_400)
        harness.fire()
        harness.fire()
    assert totals(store, "orders") == totals(store, "accounting") == [7, 7, 7]
    assert all(m.labels == {"checked": "yes"} for m in store.messages("orders"))
    assert "needs a total" in (store.schedules.get("broken").error or "")
