"""Schemas: payloads that do not match are refused, with the place of the fault, on every engine and over HTTP."""

from __future__ import annotations

import asyncio

import pytest

import tampu
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts

ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "lines": {"items": {"type": "object", "required": ["price"]}}},
}


def test_a_payload_that_does_not_match_is_refused_with_its_place(store: Store) -> None:
    store.schemas.put("order", ORDER, types="order.*")
    made = store.publish("orders", {"id": 1, "lines": []}, type="order.made")
    assert made.headers["tampu-schema"] == "order@1"
    with pytest.raises(tampu.InvalidMessage) as refused:
        store.publish("orders", {"id": 1, "lines": [{"price": 1}, {}]}, type="order.made")
    assert refused.value.field == "payload.lines[1]"
    assert "order" in str(refused.value)
    batch = [tampu.NewMessage({"id": id}, type="order.made") for id in (1, 2, 3, "x")]
    with pytest.raises(tampu.InvalidMessage) as refused:
        store.publish_many("orders", batch)
    assert refused.value.field == "messages[3].payload.id"
    assert counts(store, "orders") == {"ready": 1}
    assert store.publish("orders", "anything", type="other").headers == {}


def test_a_schema_is_for_its_queues_and_types_only(store: Store) -> None:
    store.schemas.put("order", ORDER, queues=["shop.*", "orders"])
    for queue in ("shop.emails", "orders"):
        with pytest.raises(tampu.InvalidMessage):
            store.publish(queue, {})
    assert store.publish("shop", {}).headers == {}
    store.schemas.put("order", ORDER, queues="orders", types="order.made")
    assert store.publish("orders", {}, type="order.sent").headers == {}
    assert store.publish("shop.emails", {}).headers == {}


def test_each_change_is_a_version_and_earlier_ones_can_be_read(store: Store) -> None:
    first = store.schemas.put("order", ORDER)
    assert (first.name, first.version, first.schema, first.types) == ("order", 1, ORDER, ())
    assert store.schemas.put("order", ORDER).version == 1, "the same again changes nothing"
    second = store.schemas.put("order", {"type": "object"}, types="order.*")
    assert second.version == 2
    assert store.schemas.get("order") == second
    assert store.schemas.get("order", version=1) == first
    assert [one.name for one in store.schemas.list()] == ["order"]
    assert store.schemas.delete("order")
    assert not store.schemas.delete("order")
    assert store.publish("orders", "anything").headers == {}
    for version in (None, 3):
        with pytest.raises(tampu.NotFound):
            store.schemas.get("order", version)
    assert store.schemas.get("order", version=2) == second
    assert store.schemas.put("order", ORDER).version == 3, "a version is never used twice"


def test_a_change_that_breaks_its_compatibility_is_refused(store: Store) -> None:
    closed = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    wider = {**closed, "properties": {"a": {"type": "number"}, "b": {"type": "string"}}}
    store.schemas.put("s", closed, compatibility="backward")
    assert store.schemas.put("s", wider, compatibility="backward").version == 2
    for needs in ("backward", "full"):
        with pytest.raises(tampu.InvalidConfig) as refused:
            store.schemas.put("s", closed, compatibility=needs)
        assert refused.value.field == "schema"
    assert store.schemas.put("s", closed, compatibility="forward").version == 3
    with pytest.raises(tampu.InvalidConfig):
        store.schemas.put("s", wider, compatibility="forward")
    assert store.schemas.put("s", wider).version == 4


def test_what_is_no_schema_is_refused(store: Store) -> None:
    for bad in ({"type": "nope"}, {"$ref": "http://localhost:1/x"}, {"$ref": "file:///etc/passwd"}, {"pattern": "(("}):
        with pytest.raises(tampu.InvalidConfig) as refused:
            store.schemas.put("s", bad)
        assert refused.value.field == "schema"
    for name in ("", "a b", "*", "x" * 200):
        with pytest.raises(tampu.TampuError):
            store.schemas.put(name, ORDER)
    with pytest.raises(tampu.TampuError):
        store.schemas.put("s", ORDER, compatibility="sideways")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(tampu.PayloadTooLarge):
        store.schemas.put("s", {"description": "x" * 70_000})
    assert store.schemas.list() == []


def test_every_way_to_publish_is_checked(store: Store) -> None:
    store.schemas.put("order", ORDER, queues="orders")
    with pytest.raises(tampu.InvalidMessage), store.atomic() as unit:
        unit.publish("orders", {})
    with pytest.raises(tampu.InvalidMessage):
        store.publish("orders", b"\xff\x00", content_type="application/octet-stream")
    store.schedules.put("tick", queue="orders", payload={}, every=3600)
    with pytest.raises(tampu.InvalidMessage):
        store.schedules.fire("tick")


def test_other_tenants_have_their_own(store: Store, harness: Harness) -> None:
    store.schemas.put("order", ORDER)
    other = harness.open(tenant="other")
    assert other.schemas.list() == []
    assert other.publish("orders", "anything").headers == {}
    with pytest.raises(tampu.NotFound):
        other.schemas.get("order")
    assert not other.schemas.delete("order")


def test_the_same_for_tasks_of_an_event_loop(harness: Harness) -> None:
    async def run() -> None:
        async with tampu.open_async(**harness.opening()) as store:
            assert (await store.schemas.put("order", ORDER)).version == 1
            with pytest.raises(tampu.InvalidMessage):
                await store.publish("orders", {})
            assert await store.schemas.delete("order")
            assert [record.action for record in await store.audit()] == ["schema.put", "schema.delete"]

    asyncio.run(run())


def test_a_queue_can_keep_invalid_messages_as_dead_letters(store: Store) -> None:
    store.queues.put("orders", on_invalid="dead")
    store.schemas.put("order", ORDER, queues="orders")
    good, bad = store.publish_many("orders", [{"id": 1}, {"id": "x"}])
    assert (good.state, bad.state, bad.reason) == ("ready", "dead", "schema_invalid")
    found = store.get(bad.id)
    assert (found.state, found.reason, found.payload) == ("dead", "schema_invalid", {"id": "x"})
    assert found.last_error is not None
    assert "payload.id" in found.last_error
    assert counts(store, "orders") == {"ready": 1, "dead": 1}
    assert len(store.claim("orders", limit=5)) == 1
    assert len(store.replay("orders", where={}).messages) == 1
