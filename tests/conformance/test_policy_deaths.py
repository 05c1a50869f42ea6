"""Whoever dies between two statements of a publish with policies, or of the follower of rules, breaks no promise."""

from __future__ import annotations

import functools

import pytest

from tampu.broker.store import Store
from tests.conformance.conftest import DIRECT
from tests.conformance.dying import Mortals, follow_once, payloads_of, publish_with_policies
from tests.conformance.harness import Harness, inside, until

MOST = 300
OF_NEWS = ("news", "news@all", "news@some")
OF_ORDERS = ("orders", "copies")
_PUBLISH = {"publish": {"queue": "effects", "expression": "message.payload"}}


@pytest.mark.parametrize("direct_harness", [kit for kit in DIRECT if kit.name == "file"], ids=["file"], indirect=True)
def test_a_process_that_dies_between_any_two_statements_leaves_each_effect_once_or_nothing(
    direct_harness: Harness,
) -> None:
    """In a file: each death is a process, and `test_atomic_deaths` shows on every engine that units are whole."""
    store = direct_harness.open(live=True)
    store.queues.put("news", consumer_mode="broadcast")
    store.subscriptions.put("news", "all")
    store.subscriptions.put("news", "some", filter="message.payload >= 0")
    store.rules.put("mark", queues="news", when="message.payload >= 0", actions=[{"set": {"labels": {"seen": "yes"}}}])
    store.rules.put("copy", queues="orders", actions=[{"copy": "copies"}])
    for queue in ("news@all", "news@some", "copies", "jobs"):
        store.queues.put(queue, max_attempts=3)
    published = 0
    mortals = Mortals(direct_harness.url)
    while not mortals.send_unit(published, "publish"):
        published += 1
        assert published < MOST
    store.rules.put("after", trigger="completed", queues="jobs", actions=[_PUBLISH])
    jobs = store.publish_many("jobs", list(range(5)))
    for lease in store.claim("jobs", limit=len(jobs)):
        store.ack(lease)
    died = 0
    while not mortals.send_unit(died, "follow"):
        died += 1
        assert died < MOST
    assert published > 3 < died, "there are statements to die between"
    direct_harness.close()
    store = direct_harness.live()
    whole = range(published + 1)
    eventual = "atomic:eventual" in inside(store).engine.capabilities
    for queues in (OF_NEWS, OF_ORDERS):
        if eventual:
            until(functools.partial(_agree, store, queues))
        first, *others = (payloads_of(store, queue) for queue in queues)
        assert all(found == first for found in others), "all of a publish, or nothing"
        assert len(set(first)) == len(first)
        assert published in first, "the last one lived"
    for nth in whole:
        publish_with_policies(store, nth)
    assert {tuple(payloads_of(store, queue)) for queue in OF_ORDERS} == {tuple(whole)}, "each order and its copy once"
    _follow_all(store)
    assert payloads_of(store, "effects") == list(range(len(jobs))), "one effect for each job"


def _agree(store: Store, queues: tuple[str, ...]) -> bool:
    return len({tuple(payloads_of(store, queue)) for queue in queues}) == 1


def _follow_all(store: Store) -> None:
    def over() -> bool:
        follow_once(store, 0)
        return all(one.behind == 0 for one in store.followers.list() if one.name == "rules")

    until(over)
