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
from tampu.engines.port import Cancel, Free, PutDocument, Together
from tampu.maintenance import follower as follower_module
from tampu.maintenance.follower import ATTEMPTS, Follower
from tampu.model.errors import Unavailable
from tampu.model.journal import Transition
from tampu.model.outcome import Outcome
from tampu.model.times import moment
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


def status(store: Store, name: str = "echo") -> tampu.FollowerStatus:
    (found,) = [one for one in store.followers.list() if one.name == name]
    return found


def is_at_the_end(store: Store) -> bool:
    found = status(store)
    return (found.status, found.behind, found.error, found.attempts, found.retry_at) == ("active", 0, None, 0, None)


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
    assert is_at_the_end(store)


def test_a_handler_continues_at_its_position_also_in_small_pages(
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
def test_a_lost_answer_repeats_nothing(
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
    assert status(store).error is None
    while follower.turn() != 0:
        pass
    assert echoes(store) == expected(*range(3))
    assert counted(store) == transitions(store)


def test_a_page_that_is_handled_twice_publishes_its_messages_once(store: Store, harness: Harness) -> None:
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


def test_only_one_of_two_leaders_has_any_effect(store: Store, harness: Harness, echo: Echo) -> None:
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
    assert status(store).error is None


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
            found = status(store)
            assert (found.error, found.attempts) == ("ValueError: no such address", attempt)
            assert found.status == ("parked" if attempt == ATTEMPTS else "waiting")
            if found.retry_at is not None:
                waits.append((found.retry_at - moment(harness.clock.now())).total_seconds())
                harness.clock.advance(waits[-1])
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
        assert status(store).retry_at is None
        assert any("tampu followers resume echo" in text for _, _, text in store.check())
        assert (echoes(store), counted(store)) == ([], 0)
        assert (echoes(store, "others"), counted(store, name="other")) == (expected(1), transitions(store))
        echo.fault = lambda: None
        harness.clock.advance(DAY)
        harness.follow()
        assert status(store).behind == transitions(store)
        assert other.seen
        resumed = store.followers.resume("echo")
        assert (resumed.name, resumed.status, resumed.behind) == ("echo", "active", transitions(store))
        harness.follow()
        assert echoes(store) == expected(1)
        assert is_at_the_end(store)


def test_a_handler_waits_for_a_full_queue_and_is_not_parked(store: Store, harness: Harness, echo: Echo) -> None:
    store.queues.put("echoes", max_depth=2)
    store.publish_many("jobs", range(2))
    for _ in range(ATTEMPTS + 5):
        harness.follow()
        harness.clock.advance(10)
    found = status(store)
    assert (found.status, found.attempts) == ("waiting", 0)
    assert (found.error or "").startswith("QueueFull")
    store.queues.put("echoes", max_depth=0)
    inside(store).settings.forget()
    harness.follow()
    assert echoes(store) == expected(*range(2))


def test_a_page_is_tried_again_if_its_document_has_changed(store: Store, harness: Harness, echo: Echo) -> None:
    def meddle() -> None:
        echo.fault = lambda: None
        inside(store).engine.run([PutDocument("count", "default", "echo", b"100")])

    store.publish("jobs", 1)
    echo.fault = meddle
    harness.follow()
    assert (status(store).error or "").startswith("VersionConflict")
    harness.clock.advance(1)
    harness.follow()
    assert echoes(store) == expected(1)
    assert counted(store) == 100 + transitions(store)


def test_effects_too_large_for_one_commit_take_several(
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


def test_retention_does_not_wait_for_a_removed_handler(store: Store, harness: Harness) -> None:
    with following(harness, Echo()):
        store.publish("jobs", 1)
    assert status(store).behind == 1
    assert any("follower:echo" in text for _, _, text in store.check())
    harness.clock.advance(2 * DAY)
    assert any("tampu followers remove echo" in text for _, _, text in store.check())
    assert store.followers.remove("echo")
    assert store.followers.list() == []
    assert not store.followers.remove("echo")
    with pytest.raises(tampu.NotFound, match="no follower echo"):
        store.followers.resume("echo")
    with pytest.raises(tampu.InvalidMessage, match="not a follower name"):
        store.followers.resume("no such/name")


def test_a_handler_that_was_removed_while_it_is_registered_skips_what_it_has_not_seen(
    store: Store, harness: Harness, echo: Echo
) -> None:
    turns = Follower(harness.core())
    turns.turn()
    store.publish("jobs", "skipped")
    store.followers.remove("echo")
    while turns.turn() != 0:
        pass
    store.publish("jobs", "seen")
    while turns.turn() != 0:
        pass
    assert echoes(store) == expected("seen")
    assert is_at_the_end(store)


def test_followers_are_listed_by_name_with_their_positions(store: Store, harness: Harness, echo: Echo) -> None:
    with following(harness, Echo("another", "others")):
        store.publish("jobs", 1)
        harness.follow()
        found = store.followers.list()
        assert [one.name for one in found] == ["another", "echo"]
        assert [one.position for one in found] == [store.journal(limit=1).latest] * 2
        assert all(one.moved_at == moment(harness.clock.now()) for one in found)


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


def test_transitions_of_other_processes_are_followed(shared_harness: Harness) -> None:
    handler = Echo()
    with followers.registered(handler):
        store = shared_harness.live()
        other = shared_harness.open(live=True)
        other.publish("jobs", 1)
        (lease,) = other.claim("jobs")
        until(lambda: len(echoes(store)) == 2)
        other.ack(lease)
        until(lambda: "ack" in [m.verb for m in handler.seen])


class Sibling:
    """Cancels, or frees, certain messages when another one is done."""

    name = "sibling"

    def __init__(self, verb: str) -> None:
        self.verb = verb
        self.of: dict[str, list[str]] = {}
        """By the id of the message that is done: the ids of those."""

    def handle(self, transitions: Sequence[Transition], effects: Effects) -> None:
        for moved in transitions:
            if moved.verb == "ack":
                getattr(effects, self.verb)(moved, *self.of.get(moved.id, ()))


@pytest.fixture(params=["cancel", "free"])
def sibling(harness: Harness, request: pytest.FixtureRequest) -> Iterator[Sibling]:
    handler = Sibling(request.param)
    with following(harness, handler):
        yield handler


def siblings(store: Store, handler: Sibling, n: int = 1) -> list[tampu.Message]:
    """A message that is done, and ``n`` that wait for it, in another queue."""
    first = store.publish("jobs", 1)
    made = [store.publish("others", i, hold="wait") for i in range(n)]
    handler.of[first.id] = [m.id for m in made]
    store.ack(store.claim("jobs")[0])
    return made


def states(store: Store, made: Sequence[tampu.Message]) -> set[str]:
    return {str(store.get(m.id).state) for m in made}


def now(handler: Sibling) -> set[str]:
    return {{"cancel": "cancelled", "free": "ready"}[handler.verb]}


def count(store: Store, handler: Sibling) -> int:
    return [m.verb for m in store.journal(limit=10_000).transitions].count(handler.verb)


def test_a_handler_cancels_and_frees(store: Store, harness: Harness, sibling: Sibling) -> None:
    made = siblings(store, sibling, 3)
    sibling.of[next(iter(sibling.of))].append("019b76da-a800-7000-8000-000000000001")  # not there
    harness.follow()
    assert states(store, made) == now(sibling)
    harness.follow()
    assert count(store, sibling) == 3
    assert status(store, "sibling").behind == 0


def test_a_message_that_has_ended_meanwhile_stops_no_handler(store: Store, harness: Harness, sibling: Sibling) -> None:
    gone, made = siblings(store, sibling), siblings(store, sibling)
    store.cancel(gone[0].id)
    harness.follow()
    assert states(store, gone) == {"cancelled"}
    assert states(store, made) == now(sibling)
    assert status(store, "sibling").status == "active"


def test_the_next_leader_completes_what_a_dead_one_decided(
    store: Store, harness: Harness, sibling: Sibling, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = siblings(store, sibling)
    with monkeypatch.context() as patch:  # it dies right after the unit
        patch.setattr(Follower, "_carry_out", lambda self, handler: self._known[handler.name])
        Follower(harness.core()).turn()
    assert states(store, made) == {"held"}
    assert status(store, "sibling").behind == 0
    harness.follow()
    assert states(store, made) == now(sibling)
    assert count(store, sibling) == 1


def test_what_a_server_did_not_answer_is_done_again(
    store: Store, harness: Harness, sibling: Sibling, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, core = siblings(store, sibling), harness.core()
    do = core.do

    def failing(step: Any) -> Any:
        if isinstance(step, Cancel | Free):
            return [Outcome(id, None, Unavailable("this server of several is down")) for id in step.ids]
        return do(step)

    with monkeypatch.context() as patch:
        patch.setattr(core, "do", failing)
        with pytest.raises(Unavailable):
            Follower(core).turn()
    assert states(store, made) == {"held"}
    harness.follow()
    assert states(store, made) == now(sibling)


def test_a_leader_that_is_late_decides_nothing(store: Store, harness: Harness, sibling: Sibling) -> None:
    stale, fresh = Follower(harness.core()), Follower(harness.core())
    assert (stale.turn(), fresh.turn()) == (0, 0)
    made = siblings(store, sibling)
    decided, sibling.of = sibling.of, {}
    while fresh.turn() != 0:
        pass
    sibling.of = decided
    stale.turn()
    while stale.turn() != 0:
        pass
    assert states(store, made) == {"held"}


def test_two_leaders_that_complete_the_same_decision_do_it_once(
    store: Store, harness: Harness, sibling: Sibling
) -> None:
    stale = Follower(harness.core())
    stale.turn()
    made = siblings(store, sibling)
    stale.turn()
    harness.follow()
    while stale.turn() != 0:
        pass
    assert states(store, made) == now(sibling)
    assert count(store, sibling) == 1
    assert status(store, "sibling").status == "active"


def test_a_handler_cannot_choose_ids(store: Store, harness: Harness) -> None:
    effects = Effects("x", harness.core())
    moved = Transition(1, 0, "default", "jobs", "publish", "x", tampu.State.READY, 0)
    for name in ("id", "idempotency_key"):
        with pytest.raises(TypeError, match="derived from the transition"):
            effects.publish(moved, "jobs", 1, **{name: "x"})
