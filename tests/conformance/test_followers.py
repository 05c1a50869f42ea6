"""Followers: handlers see every transition once in effect, in order, whatever fails in between."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import tampu
from tampu.broker import followers
from tampu.broker.followers import Effects
from tampu.broker.store import Store
from tampu.engines.port import PutDocument, Together
from tampu.maintenance import follower as follower_module
from tampu.maintenance.follower import ATTEMPTS, Follower
from tampu.model.errors import Unavailable
from tampu.model.journal import Transition
from tests.conformance.harness import Harness, counts, inside, until

DAY = 86_400


class Echo:
    """Publishes two messages for each message that was published to ``jobs``, and counts them in a document."""

    def __init__(self, name: str = "echo", queue: str = "echoes") -> None:
        self.name = name
        self.queue = queue
        self.seen: list[Transition] = []
        self.fault: Callable[[], None] = lambda: None

    def handle(self, transitions: Sequence[Transition], effects: Effects) -> None:
        self.seen += transitions
        for moved in transitions:
            if moved.verb == "publish" and moved.queue == "jobs":
                message = effects.message(moved)
                assert message is not None
                for n in range(2):
                    effects.publish(moved, self.queue, [message.payload, n])
        tenants = {moved.tenant for moved in transitions}
        for tenant in tenants:
            kept = effects.document("count", tenant, self.name)
            before, version = (int(kept.value), kept.version) if kept is not None else (0, 0)
            new = sum(moved.tenant == tenant for moved in transitions)
            effects.put_document("count", tenant, self.name, before + new, version)
        self.fault()


@contextlib.contextmanager
def following(harness: Harness, *handlers: Any) -> Iterator[None]:
    """The handlers are registered, and begin here."""
    with contextlib.ExitStack() as stack:
        for handler in handlers:
            stack.enter_context(followers.registered(handler))
        harness.follow()
        yield


@pytest.fixture
def echo(harness: Harness) -> Iterator[Echo]:
    handler = Echo()
    with following(harness, handler):
        yield handler


def echoes(store: Store, queue: str = "echoes") -> list[Any]:
    return [m.payload for m in store.messages(queue, limit=10_000)] if queue in store.queues.list() else []


def counted(store: Store, tenant: str = "default", name: str = "echo") -> int:
    found = inside(store).engine.document("count", tenant, name)
    return 0 if found is None else int(found.value)


def expected(*payloads: Any) -> list[Any]:
    return [[payload, n] for payload in payloads for n in range(2)]


def status(store: Store, name: str = "echo") -> followers.Status:
    (found,) = [one for one in followers.statuses(inside(store).engine) if one.name == name]
    return found


def transitions(store: Store) -> int:
    return len(store.journal(limit=100_000).transitions)


def test_each_transition_has_its_effects_once_and_in_order(store: Store, harness: Harness, echo: Echo) -> None:
    published = store.publish_many("jobs", range(20))
    for lease in store.claim("jobs", limit=5):
        store.ack(lease)
    harness.follow()
    harness.follow()
    assert echoes(store) == expected(*range(20))
    assert counted(store) == transitions(store)
    assert [m.id for m in echo.seen if m.verb == "publish" and m.queue == "jobs"] == [m.id for m in published]
    causes = [m.causation_id for m in store.messages("echoes", limit=100)]
    assert causes == [m.id for m in published for _ in range(2)]
    assert status(store) == followers.Status("echo", 0, None)


def test_a_handler_goes_on_where_it_was_also_in_small_pages(
    store: Store, harness: Harness, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "_PAGE", 3)
    store.publish_many("jobs", range(5))
    store.publish("other", "x")
    turns = Follower(harness.core())
    assert turns.turn() is None
    assert counted(store) == 3
    harness.follow()
    store.publish_many("jobs", range(5, 9))
    harness.follow()
    assert echoes(store) == expected(*range(9))
    assert counted(store) == transitions(store)
    assert [(m.partition, m.offset) for m in echo.seen] == list({(m.partition, m.offset): 0 for m in echo.seen})


def test_a_new_handler_begins_at_the_end_of_the_journal(store: Store, harness: Harness) -> None:
    store.publish_many("jobs", ["before"] * 3)
    handler = Echo()
    with following(harness, handler):
        store.publish("jobs", "after")
        harness.follow()
    assert echoes(store) == expected("after")


def test_a_crash_before_the_commit_has_no_effect_and_repeats_nothing(
    store: Store, harness: Harness, echo: Echo
) -> None:
    store.publish_many("jobs", range(3))

    def die() -> None:
        raise KeyboardInterrupt

    echo.fault = die
    with pytest.raises(KeyboardInterrupt):
        harness.follow()
    assert (echoes(store), counted(store)) == ([], 0)
    echo.fault = lambda: None
    harness.follow()
    assert echoes(store) == expected(*range(3))
    assert counted(store) == transitions(store)


@pytest.mark.parametrize("committed", [False, True])
def test_an_answer_that_is_lost_repeats_nothing(
    store: Store, harness: Harness, echo: Echo, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish_many("jobs", range(3))
    core: Any = harness.core()
    do = core.do

    def losing(step: Any) -> Any:
        if not isinstance(step, Together):
            return do(step)
        if committed:
            do(step)
        monkeypatch.undo()
        raise Unavailable("the answer is lost")

    follower = Follower(core)
    monkeypatch.setattr(core, "do", losing)
    with pytest.raises(Unavailable):
        follower.turn()
    assert status(store).failure is None
    while follower.turn() != 0:
        pass
    assert echoes(store) == expected(*range(3))
    assert counted(store) == transitions(store)


def test_a_page_that_is_handed_over_twice_has_its_messages_once(store: Store, harness: Harness) -> None:
    """The ids alone see to it: here the position is set back."""

    class Twice:
        name = "twice"

        def handle(self, transitions: Sequence[Transition], effects: Effects) -> None:
            for moved in transitions:
                if moved.queue == "jobs":
                    for n in range(2):
                        effects.publish(moved, "echoes", [moved.offset, n])

    with following(harness, Twice()):
        engine = inside(store).engine
        kept = engine.document("reader", "*", "follower:twice")
        assert kept is not None
        store.publish_many("jobs", range(3))
        harness.follow()
        first = [(m.id, m.payload) for m in store.messages("echoes")]
        inside(store).coalescer.submit(PutDocument("reader", "*", "follower:twice", kept.value))
        harness.follow()
        assert [(m.id, m.payload) for m in store.messages("echoes")] == first
        assert len({id for id, _ in first}) == 6


def test_of_two_that_lead_only_one_has_any_effect(store: Store, harness: Harness, echo: Echo) -> None:
    stale, fresh = Follower(harness.core()), Follower(harness.core())
    assert (stale.turn(), fresh.turn()) == (0, 0)
    store.publish_many("jobs", range(3))
    fresh.turn()
    stale.turn()
    assert counted(store) == 3
    while stale.turn() != 0:
        pass
    assert echoes(store) == expected(*range(3))
    assert counted(store) == transitions(store)
    assert status(store).failure is None


def test_a_handler_that_raises_waits_longer_and_longer_is_parked_and_does_not_stop_others(
    store: Store, harness: Harness, echo: Echo
) -> None:
    def fail() -> None:
        raise ValueError("no such address")

    with following(harness, other := Echo("other", "others")):
        echo.fault = fail
        store.publish("jobs", 1)
        waits = []
        for attempt in range(1, ATTEMPTS + 1):
            harness.follow()
            harness.follow()  # it is not its time yet
            failure = status(store).failure
            assert failure is not None
            assert (failure.error, failure.attempts) == ("ValueError: no such address", attempt)
            assert failure.parked is (attempt == ATTEMPTS)
            waits.append((failure.retry_us - harness.clock.now()) / 1_000_000)
            harness.clock.advance(waits[-1])
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
        assert (echoes(store), counted(store)) == ([], 0)
        assert (echoes(store, "others"), counted(store, name="other")) == (expected(1), transitions(store))
        echo.fault = lambda: None
        harness.clock.advance(DAY)
        harness.follow()
        assert status(store).behind == transitions(store)
        assert other.seen
        followers.resume(inside(store), "echo")
        harness.follow()
        assert echoes(store) == expected(1)
        assert status(store) == followers.Status("echo", 0, None)


def test_a_full_queue_is_waited_for_and_parks_nobody(store: Store, harness: Harness, echo: Echo) -> None:
    store.queues.put("echoes", max_depth=2)
    store.publish_many("jobs", range(2))
    for _ in range(ATTEMPTS + 5):
        harness.follow()
        harness.clock.advance(10)
    failure = status(store).failure
    assert failure is not None
    assert (failure.parked, failure.attempts) == (False, 0)
    assert failure.error.startswith("QueueFull")
    store.queues.put("echoes", max_depth=0)
    inside(store).settings.forget()
    harness.follow()
    assert echoes(store) == expected(*range(2))


def test_a_document_that_was_changed_meanwhile_refuses_the_page_and_it_is_tried_again(
    store: Store, harness: Harness, echo: Echo
) -> None:
    def meddle() -> None:
        echo.fault = lambda: None
        inside(store).engine.run([PutDocument("count", "default", "echo", b"100")])

    store.publish("jobs", 1)
    echo.fault = meddle
    harness.follow()
    failure = status(store).failure
    assert failure is not None
    assert failure.error.startswith("VersionConflict")
    harness.clock.advance(1)
    harness.follow()
    assert echoes(store) == expected(1)
    assert counted(store) == 100 + transitions(store)


def test_what_is_too_much_for_one_commit_is_several(
    store: Store, harness: Harness, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "_MOST_BYTES", 1000)
    texts = [f"{n:0300}" for n in range(10)]
    store.publish_many("jobs", texts)
    harness.follow()
    assert echoes(store) == expected(*texts)
    assert counted(store) == transitions(store)


def test_effects_stay_in_the_tenant_of_their_cause(store: Store, harness: Harness, echo: Echo) -> None:
    other = harness.open(tenant="other")
    store.publish("jobs", "a")
    other.publish("jobs", "b")
    store.publish("jobs", "c")
    harness.follow()
    assert (echoes(store), echoes(other)) == (expected("a", "c"), expected("b"))
    assert (counted(store), counted(store, "other")) == (transitions(store), transitions(other))


def test_retention_waits_for_a_handler(store: Store, harness: Harness, echo: Echo) -> None:
    store.publish_many("jobs", range(3))
    store.settle([tampu.Ack(lease) for lease in store.claim("jobs", limit=3)])
    harness.clock.advance(30 * DAY)
    with harness.unchanged(store):
        harness.trim(journal=60)
    harness.follow()
    store.purge("echoes", state="ready")
    harness.follow()
    harness.clock.advance(30 * DAY)
    harness.trim(journal=60)
    assert (counts(store, "jobs"), transitions(store)) == ({}, 0)


def test_a_handler_that_is_removed_is_not_waited_for(store: Store, harness: Harness) -> None:
    with following(harness, Echo()):
        store.publish("jobs", 1)
    assert status(store).behind == 1
    assert any("follower:echo" in text for _, _, text in store.check())
    followers.remove(inside(store), "echo")
    assert followers.statuses(inside(store).engine) == []
    for verb in (followers.remove, followers.resume):
        with pytest.raises(tampu.NotFound, match="no follower echo"):
            verb(inside(store), "echo")


def test_the_maintenance_of_an_open_store_follows_by_itself(harness: Harness) -> None:
    handler = Echo()
    with followers.registered(handler):
        store = harness.live()
        store.publish_many("jobs", range(3))
        until(lambda: len(echoes(store)) == 6)
        for lease in store.claim("jobs", limit=3):
            store.ack(lease)
        until(lambda: [m.verb for m in handler.seen if m.queue == "jobs"].count("ack") == 3)
        until(lambda: counted(store) == transitions(store))


def test_what_other_processes_did_is_followed(shared_harness: Harness) -> None:
    handler = Echo()
    with followers.registered(handler):
        store = shared_harness.live()
        other = shared_harness.open(live=True)
        other.publish("jobs", 1)
        (lease,) = other.claim("jobs")
        until(lambda: len(echoes(store)) == 2)
        other.ack(lease)
        until(lambda: "ack" in [m.verb for m in handler.seen])


def test_a_handler_cannot_choose_ids(store: Store, harness: Harness) -> None:
    effects = Effects("x", harness.core())
    moved = Transition(1, 0, "default", "jobs", "publish", "x", tampu.State.READY, 0)
    for name in ("id", "idempotency_key"):
        with pytest.raises(TypeError, match="follows from its cause"):
            effects.publish(moved, "jobs", 1, **{name: "x"})
