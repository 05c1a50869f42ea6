"""A batch under a name of its own is stored once, however often it is published: what a lost answer asks for."""

from __future__ import annotations

from typing import Any

import pytest

import tampu
from tampu.broker.queue import Queue
from tampu.broker.verbs import Verbs
from tampu.model.message import Message
from tests.conformance.house import House, counts, group, inside, payloads, verbs

NAME = "a-name-drawn-at-random"


def publish(q: Queue, *batches: tuple[list[Any], str], queue: str = "jobs", tenant: str = "default") -> list[Any]:
    """Publish these in one commit, each under its name."""
    core = inside(q)
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
def test_the_same_batch_again_is_answered_and_not_stored(q: Queue, config: dict[str, Any]) -> None:
    if config:
        q.queues.put("jobs", **config)
    (first,) = publish(q, ([1, 2, 3], NAME))
    (again,) = publish(q, ([1, 2, 3], NAME))
    assert ids(again) == ids(first)
    assert [(m.duplicate, m.payload, m.state) for m in again] == [(True, m.payload, m.state) for m in first]
    assert not any(m.duplicate for m in first)
    assert verbs(q) == ["publish"] * 3
    assert len(list(q.messages("jobs"))) == 3


def test_messages_with_options_are_found_again_too(q: Queue) -> None:
    q.queues.put("jobs", group_order=True)
    news = [tampu.NewMessage(1, delay=60), tampu.NewMessage(2, labels={"a": "b"}), *group("g", 3, 4)]
    (first,) = publish(q, (news, NAME))
    (again,) = publish(q, (news, NAME))
    assert ids(again) == ids(first)
    assert counts(q, "jobs") == {"delayed": 1, "ready": 2, "held": 1}


def test_a_batch_that_came_twice_in_one_commit_is_stored_once(q: Queue) -> None:
    one, two, other = publish(q, ([1, 2], NAME), ([1, 2], NAME), ([3], NAME + "2"))
    assert ids(one) == ids(two)
    assert [m.duplicate for m in two] == [True, True]
    assert payloads(q.claim("jobs", limit=10)) == [1, 2, 3]
    assert not other[0].duplicate


def test_a_batch_whose_messages_were_taken_meanwhile_is_not_stored_again(q: Queue) -> None:
    (first,) = publish(q, ([1, 2, 3], NAME))
    one, two = q.claim("jobs", limit=2)
    q.ack(one)
    (again,) = publish(q, ([1, 2, 3], NAME))
    assert ids(again) == ids(first)
    assert [m.state.value for m in again] == ["done", "leased", "ready"]
    q.ack(two)
    assert counts(q, "jobs") == {"done": 2, "ready": 1}


def test_names_are_of_one_queue_and_tenant(house: House, q: Queue) -> None:
    house.open(tenant="other")
    publish(q, ([1, 2], NAME))
    for queue, tenant in (("others", "default"), ("jobs", "other")):
        (made,) = publish(q, ([1, 2], NAME), queue=queue, tenant=tenant)
        assert not any(m.duplicate for m in made)


def test_a_name_is_no_idempotency_key(q: Queue) -> None:
    publish(q, ([1, 2], NAME))
    assert not q.publish("jobs", 3, idempotency_key=NAME).duplicate
    assert q.publish("jobs", 3, idempotency_key=NAME).duplicate


def test_a_batch_that_was_refused_can_be_published_later(q: Queue) -> None:
    q.queues.put("jobs", max_depth=2)
    q.publish("jobs", 0)
    (refused,) = publish(q, ([1, 2], NAME))
    assert isinstance(refused, tampu.QueueFull)
    q.ack(q.claim("jobs")[0])
    (made,) = publish(q, ([1, 2], NAME))
    assert not any(m.duplicate for m in made)
    assert counts(q, "jobs") == {"done": 1, "ready": 2}
