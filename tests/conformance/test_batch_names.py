"""A batch with a name is stored once, however often it is published, so it can be repeated after a lost answer."""

from __future__ import annotations

from typing import Any

import pytest

import tampu
from tampu.broker.store import Store
from tampu.broker.verbs import Verbs
from tampu.model.message import Message
from tests.conformance.harness import Harness, counts, group, inside, payloads, verbs

NAME = "a-name-drawn-at-random"


def publish(store: Store, *batches: tuple[list[Any], str], queue: str = "jobs", tenant: str = "default") -> list[Any]:
    """Publish these in one commit, each under its name."""
    core = inside(store)
    core.settings.get(tenant, queue)
    return core.engine.run([Verbs(core, tenant).publishing(queue, news, once) for news, once in batches])


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


CONFIGS: list[dict[str, Any]] = [
    {},
    {"ordering": "priority"},
    {"ttl": 600},
    {"group_order": True, "group_by": "type"},
    {"group_concurrency": 1},
    {"max_depth": 3},
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: ",".join(config) or "plain")
def test_the_same_batch_again_is_answered_and_not_stored(store: Store, config: dict[str, Any]) -> None:
    if config:
        store.queues.put("jobs", **config)
    (first,) = publish(store, ([1, 2, 3], NAME))
    (again,) = publish(store, ([1, 2, 3], NAME))
    assert ids(again) == ids(first)
    assert [(m.duplicate, m.payload, m.state) for m in again] == [(True, m.payload, m.state) for m in first]
    assert not any(m.duplicate for m in first)
    assert verbs(store) == ["publish"] * 3
    assert len(list(store.messages("jobs"))) == 3


def test_messages_with_options_are_found_again_too(store: Store) -> None:
    store.queues.put("jobs", group_order=True)
    news = [tampu.NewMessage(1, delay=60), tampu.NewMessage(2, labels={"a": "b"}), *group("g", 3, 4)]
    (first,) = publish(store, (news, NAME))
    (again,) = publish(store, (news, NAME))
    assert ids(again) == ids(first)
    assert counts(store, "jobs") == {"delayed": 1, "ready": 2, "held": 1}


def test_a_batch_that_is_published_twice_in_one_commit_is_stored_once(store: Store) -> None:
    one, two, other = publish(store, ([1, 2], NAME), ([1, 2], NAME), ([3], NAME + "2"))
    assert ids(one) == ids(two)
    assert [m.duplicate for m in two] == [True, True]
    assert payloads(store.claim("jobs", limit=10)) == [1, 2, 3]
    assert not other[0].duplicate


def test_a_batch_whose_messages_were_taken_meanwhile_is_not_stored_again(store: Store) -> None:
    (first,) = publish(store, ([1, 2, 3], NAME))
    one, two = store.claim("jobs", limit=2)
    store.ack(one)
    (again,) = publish(store, ([1, 2, 3], NAME))
    assert ids(again) == ids(first)
    assert [m.state.value for m in again] == ["done", "leased", "ready"]
    store.ack(two)
    assert counts(store, "jobs") == {"done": 2, "ready": 1}


def test_batch_names_are_unique_in_a_queue_of_a_tenant(harness: Harness, store: Store) -> None:
    harness.open(tenant="other")
    publish(store, ([1, 2], NAME))
    for queue, tenant in (("others", "default"), ("jobs", "other")):
        (made,) = publish(store, ([1, 2], NAME), queue=queue, tenant=tenant)
        assert not any(m.duplicate for m in made)


def test_a_batch_name_is_not_an_idempotency_key(store: Store) -> None:
    publish(store, ([1, 2], NAME))
    assert not store.publish("jobs", 3, idempotency_key=NAME).duplicate
    assert store.publish("jobs", 3, idempotency_key=NAME).duplicate


def test_a_batch_that_was_refused_can_be_published_later(store: Store) -> None:
    store.queues.put("jobs", max_depth=2)
    store.publish("jobs", 0)
    (refused,) = publish(store, ([1, 2], NAME))
    assert isinstance(refused, tampu.QueueFull)
    store.ack(store.claim("jobs")[0])
    (made,) = publish(store, ([1, 2], NAME))
    assert not any(m.duplicate for m in made)
    assert counts(store, "jobs") == {"done": 1, "ready": 2}
