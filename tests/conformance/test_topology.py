"""Topologies: a file is applied as one unit, the same again changes nothing, and a mistake is named with its line."""

from __future__ import annotations

from typing import Any

import pytest

import tampu
from tampu.broker.store import Store
from tests.conformance.harness import Harness

FILE = """
queues:
  "*": {max_attempts: 7}
  shop.*:
    lease: 2m
    group_rate: 10/m
  shop.orders: {ordering: priority, backoff: [1, 5]}
  news: {consumer_mode: broadcast}
schemas:
  order:
    queues: [shop.orders]
    schema: &order {type: object, required: [id]}
  copy: {types: ["copy.*"], schema: *order}
rules:
  vip:
    queues: [shop.orders]
    when: message.payload.total > 1000
    actions: [{set: {priority: 9}}, {copy: vip}]
    continue: true
  late: {trigger: dead, actions: [{copy: graveyard}]}
subscriptions:
  news@billing: {filter: message.type == 'invoice'}
schedules:
  nightly: {queue: shop.orders, cron: "0 3 * * *", tz: Europe/Berlin, payload: {id: 1}, labels: {by: clock}}
  often: {queue: ticks, every: 5m, start: 2030-01-01T00:00:00Z, ttl: 1h, payload: [1, null, "x"]}
"""


def test_a_file_is_applied_once_and_exported_and_pruned(store: Store, harness: Harness) -> None:
    store.publish("shop.orders", {"id": 0}, priority=5)
    preview = store.topology.apply(FILE, dry_run=True)
    assert (len(preview), preview.dry_run) == (11, True)
    assert store.topology.export() == {}, "a preview changes nothing"
    assert [f"{one.section}.{one.name}" for one in store.topology.apply(FILE).changes] == [
        "queues.*", "queues.shop.*", "queues.shop.orders", "queues.news", "schemas.order", "schemas.copy",
        "rules.vip", "rules.late", "subscriptions.news@billing", "schedules.nightly", "schedules.often",
    ]  # fmt: skip
    assert store.queues.get("shop.orders").lease == 120
    assert store.queues.get("shop.orders").max_attempts == 7
    assert store.publish("shop.orders", {"id": 7, "total": 2000}).priority == 9
    assert store.stats("vip").ready == 1
    with pytest.raises(tampu.InvalidMessage, match="required"):
        store.publish("shop.orders", {})
    assert store.schedules.get("nightly").payload == {"id": 1}
    assert [lease.payload["id"] for lease in store.claim("shop.orders", limit=2)] == [7, 0], "by the new ordering"

    assert store.topology.apply(FILE).changes == []
    exported = store.topology.export()
    assert exported["subscriptions"] == {"news@billing": {"filter": "message.type == 'invoice'"}}
    assert store.topology.apply(exported, prune=True).changes == []

    store.pause("shop.orders")
    store.schedules.pause("often")
    store.rules.put("by-hand", actions=[{"archive": True}], queues="x")
    smaller: dict[str, Any] = {"rules": {"vip": exported["rules"]["vip"]}, "queues": {"news": {}}, "schemas": None}
    gone = store.topology.apply(smaller, prune=True)
    assert {(one.section, one.name, one.action) for one in gone.changes} == {
        ("queues", "*", "delete"), ("queues", "shop.*", "delete"), ("queues", "shop.orders", "delete"),
        ("queues", "news", "change"), ("rules", "late", "delete"), ("rules", "by-hand", "delete"),
        ("schemas", "order", "delete"), ("schemas", "copy", "delete"),
    }  # fmt: skip
    assert store.queues.get("shop.orders").status == "paused", "what operators did stays"
    assert store.schedules.get("often").paused
    assert store.topology.apply(smaller, prune=True).changes == []
    actions = [(one.action, one.target) for one in store.audit(limit=1000).records]
    assert ("rule.delete", "by-hand") in actions
    assert ("topology.apply", "8 changes") in actions
    with harness.open(tenant="other") as other:
        assert other.topology.export() == {}


def test_one_mistake_refuses_the_whole_file_and_is_named_with_its_line(store: Store) -> None:
    cases = [
        ("queues:\n  a: {}\n  b:\n    leese: 3\n", 4, "queues.b.leese"),
        ("queues:\n  a: {}\n  b: {lease: soon}\n", 3, "queues.b.lease"),
        ("queues:\n  a: {}\n  _tampu.x: {}\n", 3, "queues._tampu.x"),
        ("rules:\n  r:\n    actions:\n    - copy: a\n    - coppy: b\n", 5, "rules.r.actions[1].coppy"),
        ("rules:\n  r:\n    actions: [{copy: a}]\n    when: 1 +\n", 4, "rules.r.when"),
        ("schemas:\n  s:\n    schema: {type: 7}\n", 3, "schemas.s.schema"),
        ("schedules:\n  s: {queue: q, cron: 61 * * * *}\n", 2, "schedules.s.cron"),
        ("schedules:\n  s:\n    queue: q\n    every: 5m\n    start: tomorrow\n", 5, "schedules.s.start"),
        ("keys:\n  nobody: {grants: [{permissions: [view]}]}\n", 2, "keys.nobody"),
        ("queues: {}\nqueue: {}\n", 2, "queue"),
    ]
    for text, line, field in cases:
        with pytest.raises(tampu.TampuError) as failed:
            store.topology.apply(text, file="shop.yaml")
        assert failed.value.message.startswith(f"shop.yaml:{line}: "), (text, failed.value.message)
        assert failed.value.field == field, text
    assert (store.topology.export(), store.queues.list()) == ({}, [])
