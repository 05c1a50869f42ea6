"""The audit trail: every act that is not a plain publish, claim or settle leaves a record, and nobody can change it."""

from __future__ import annotations

from datetime import timedelta

import pytest

import tampu
from tampu.broker.store import Store
from tests.conformance.harness import Harness


def did(store: Store, **wanted: str) -> list[tuple[str, str]]:
    return [(record.action, record.target) for record in store.audit(**wanted)]  # type: ignore[arg-type]  # texts only


def test_plain_work_leaves_no_record(store: Store) -> None:
    store.publish_many("jobs", range(3))
    first, second, third = store.claim("jobs", limit=3)
    store.ack(first)
    store.reject(second)
    store.release(third)
    assert len(store.audit()) == 0


def test_each_act_leaves_a_record(store: Store) -> None:
    store.queues.put("jobs", lease=5)
    store.queues.put("jobs", lease=6)
    store.pause("jobs")
    store.resume("jobs")
    store.queues.reset("jobs")
    message, held = store.publish("jobs", 1), store.publish("jobs", 2, hold="why")
    store.cancel(message.id)
    store.free(held.id)
    store.reject(store.claim("jobs")[0])
    store.replay("jobs", where={})
    store.purge("jobs", state="ready")
    store.schedules.put("tick", queue="jobs", every=60)
    store.schedules.pause("tick")
    store.schedules.resume("tick")
    store.schedules.delete("tick")
    store.schemas.put("order", {"type": "object"})
    store.schemas.delete("order")
    store.queues.remove("jobs")
    actions = [action for action, _ in did(store)]
    assert actions == [
        "queue.config", "queue.config", "queue.config", "queue.config", "queue.reset", "message.cancel", "message.free",
        "queue.replay", "queue.purge", "schedule.put", "schedule.pause", "schedule.resume", "schedule.delete",
        "schema.put", "schema.delete", "queue.remove", *actions[16:],
    ]  # fmt: skip
    assert did(store, action="message.cancel") == [("message.cancel", message.id)]
    assert len(did(store, target="tick")) == 4
    assert did(store, actor="nobody") == []
    second = list(store.audit(action="queue.config"))[1]
    assert (second.before["lease"], second.after["lease"]) == (5, 6)
    assert second.actor


def test_records_come_in_pages_and_by_time(store: Store, harness: Harness) -> None:
    began = harness.clock.time
    for n in range(5):
        harness.clock.advance(60)
        store.queues.put(f"q{n}", lease=5)
    first = store.audit(limit=2)
    assert [record.target for record in first] == ["q0", "q1"]
    second = store.audit(limit=2, after=first.cursor)
    assert [record.target for record in second] == ["q2", "q3"]
    assert [record.target for record in store.audit(limit=2, after=second.cursor)] == ["q4"]
    late = store.audit(since=began + timedelta(seconds=200))
    assert [record.target for record in late] == ["q3", "q4"]
    assert len(store.audit(until=began + timedelta(seconds=200))) == 3


def test_nobody_can_change_a_record(store: Store) -> None:
    store.queues.put("jobs", lease=5)
    (record,) = store.audit()
    for act in (store.cancel, store.free):
        with pytest.raises(tampu.InvalidMessage):
            act(record.id)
    with pytest.raises(tampu.InvalidMessage), store.atomic() as unit:
        unit.cancel(record.id)
    for use in (
        lambda: store.publish("_tampu.audit", 1),
        lambda: store.claim("_tampu.audit"),
        lambda: store.purge("_tampu.audit", state="held"),
        lambda: store.queues.remove("_tampu.audit", force=True),
        lambda: store.queues.put("_tampu.audit", status="closed"),
        lambda: store.messages("_tampu.audit"),
    ):
        with pytest.raises((tampu.InvalidMessage, tampu.NotFound)):
            use()
    assert list(store.audit()) == [record]
    assert store.queues.list() == ["jobs"]


def test_settings_of_all_queues_do_not_stop_records(store: Store) -> None:
    store.queues.put("*", max_depth=1, ttl=1, max_payload=1)
    for n in range(3):
        store.queues.put(f"q{n}", lease=5)
    assert len(store.audit()) == 4


def test_an_act_that_is_refused_leaves_no_record(store: Store) -> None:
    with pytest.raises(tampu.InvalidConfig):
        store.queues.put("jobs", lease=-1)
    with pytest.raises(tampu.InvalidConfig):
        store.schemas.put("s", {"type": "nope"})
    assert len(store.audit()) == 0


def test_other_tenants_see_nothing(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", lease=5)
    assert len(harness.open(tenant="other").audit()) == 0
