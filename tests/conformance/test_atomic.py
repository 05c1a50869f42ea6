"""Several calls as one unit: all take effect, or none. A refused unit changes nothing and does not affect others."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import tampu
from tampu.broker.store import AllVerbs, Store
from tampu.engines import port
from tests.conformance.harness import Harness, counts, inside, payloads, until, verbs, waits

NAME = "a-name-drawn-at-random"


def claim(store: Store, queue: str = "jobs") -> tampu.Lease:
    return store.claim(queue, lease=60)[0]


def unit_of(store: Store, *members: Callable[[AllVerbs], Any], name: str | None = None) -> port.Together:
    """A unit as the engine takes it."""
    core = inside(store)
    made = AllVerbs(core, store.tenant)
    return port.Together(store.tenant, [member(made) for member in members], name, 600_000_000 if name else 0)


def publishes(queue: str, *news: Any) -> Callable[[AllVerbs], Any]:
    return lambda made: made.publish_member(queue, list(news))


def acks(lease: tampu.Lease) -> Callable[[AllVerbs], Any]:
    return lambda made: made.settle_member(tampu.Ack(lease))


def run(store: Store, *calls: Any) -> list[Any]:
    """Carry these out in one run of the engine."""
    return inside(store).engine.run(list(calls))


def send(store: Store, *acts: Callable[[tampu.Unit], Any]) -> None:
    """A unit of these calls."""
    with store.atomic() as unit:
        for act in acts:
            act(unit)


# -- what a unit does


def test_the_calls_of_a_unit_take_effect_at_the_end_of_its_block(store: Store) -> None:
    store.publish("jobs", "work")
    held = store.publish("jobs", "held", hold="review")
    waiting = store.publish("jobs", "unwanted", delay=60)
    lease = claim(store)
    with store.atomic() as unit:
        one = unit.publish("mails", {"to": "ann"}, priority=3)
        many = unit.publish_many("mails", [1, tampu.NewMessage(2, delay=60)])
        acked = unit.ack(lease, result="ok")
        cancelled = unit.cancel(waiting.id)
        freed = unit.free(held.id)
        written = unit.put_document("cursor", "jobs", {"at": 7})
        assert verbs(store) == ["publish", "publish", "publish", "claim"]
        with pytest.raises(tampu.InvalidState):
            _ = one.value
    assert one.value.payload == {"to": "ann"}
    assert one.value.priority == 3
    assert [m.state for m in many.value] == ["ready", "delayed"]
    assert (acked.value.id, acked.value.state) == (lease.id, "done")
    assert [(o.id, o.state) for o in cancelled.value] == [(waiting.id, "cancelled")]
    assert [(o.id, o.state) for o in freed.value] == [(held.id, "ready")]
    assert store.get_document("cursor", "jobs") == tampu.Document("cursor", "jobs", written.value, {"at": 7})
    assert counts(store, "jobs") == {"ready": 1, "done": 1, "cancelled": 1}
    assert counts(store, "mails") == {"ready": 2, "delayed": 1}
    assert store.get(lease.id).result == "ok"
    assert {m.id for m in store.messages("mails")} == {one.value.id, *(m.id for m in many.value)}
    assert sorted(verbs(store)[4:]) == ["ack", "cancel", "free", "publish", "publish", "publish"]


def test_a_message_of_a_unit_wakes_a_waiting_claim(harness: Harness) -> None:
    store = harness.live()
    found: list[Any] = []
    worker = threading.Thread(target=lambda: found.extend(store.claim("jobs", wait=60)))
    worker.start()
    until(lambda: waits(store))
    with store.atomic() as unit:
        unit.publish("jobs", "work")
    worker.join(60)
    assert payloads(found) == ["work"]


def test_each_way_to_settle_works_in_a_unit(store: Store) -> None:
    store.publish_many("jobs", [1, 2, 3])
    first, second, third = store.claim("jobs", limit=3)
    with store.atomic() as unit:
        replies = [
            unit.nack(first, "no luck", delay=60),
            unit.reject(second, "no_such_user"),
            unit.release(third.receipt),
        ]
    assert [reply.value.state for reply in replies] == ["delayed", "dead", "ready"]
    assert store.get(first.id).last_error == "no luck"
    assert store.get(second.id).reason == "no_such_user"
    assert store.get(third.id).attempts == 0


def test_a_unit_that_acks_one_message_may_publish_one_to_a_full_queue(store: Store) -> None:
    store.queues.put("jobs", max_depth=1)
    store.publish("jobs", 1)
    with store.atomic() as unit:
        unit.ack(claim(store))
        unit.publish("jobs", 2)
    assert payloads([claim(store)]) == [2]


def test_the_next_message_of_a_group_is_ready_when_a_unit_acks_the_one_before(store: Store) -> None:
    store.queues.put("jobs", group_order=True)
    store.publish_many("jobs", [tampu.NewMessage(n, group="g") for n in (1, 2)])
    with store.atomic() as unit:
        unit.ack(claim(store))
        last = unit.publish("jobs", 3, group="g")
    assert last.value.state == "held"
    second = claim(store)
    assert second.payload == 2
    assert store.claim("jobs") == []
    store.ack(second)
    assert claim(store).payload == 3


def test_a_message_takes_the_slot_in_its_group_that_the_same_unit_frees(store: Store) -> None:
    store.queues.put("jobs", group_order=True)
    store.publish("jobs", 1, group="g")
    with store.atomic() as unit:
        unit.ack(claim(store))
        following = unit.publish("jobs", 2, group="g")
    assert following.value.state == "ready"
    assert claim(store).payload == 2


def test_documents_have_versions(store: Store) -> None:
    assert store.get_document("cursor", "jobs") is None
    with store.atomic() as unit:
        first = unit.put_document("cursor", "jobs", 1, version=0)
    with store.atomic() as unit:
        second = unit.put_document("cursor", "jobs", 2, version=first.value)
    assert second.value > first.value
    with store.atomic() as unit:
        gone, other = unit.delete_document("cursor", "jobs"), unit.delete_document("cursor", "none")
    assert (gone.value, other.value) == (True, False)
    assert store.get_document("cursor", "jobs") is None


def test_a_unit_that_publishes_often_to_many_queues_gives_each_its_own(store: Store) -> None:
    news = {f"many-{n}": [f"{n} {i}" for i in range(3)] for n in range(12)}
    unit = unit_of(store, *(publishes(queue, one) for queue, some in news.items() for one in some))
    run(store, msgspec.structs.replace(unit, calls=[msgspec.structs.replace(call, simple=True) for call in unit.calls]))
    assert {queue: payloads(store.claim(queue, limit=5)) for queue in news} == news


def test_an_empty_unit_does_nothing(harness: Harness, store: Store) -> None:
    with harness.unchanged(store), store.atomic():
        pass


# -- what sends nothing


def test_an_error_inside_the_block_sends_nothing(harness: Harness, store: Store) -> None:
    store.publish("jobs", 1)
    lease = claim(store)
    with harness.unchanged(store), contextlib.suppress(ZeroDivisionError), store.atomic() as unit:
        unit.ack(lease)
        unit.publish("jobs", 1 // 0)


BAD: dict[str, Callable[[tampu.Unit], Any]] = {
    "queue": lambda unit: unit.publish("no/queue", 1),
    "payload": lambda unit: unit.publish("jobs", object()),
    "option": lambda unit: unit.publish("jobs", 1, no_such_option=1),
    "messages": lambda unit: unit.publish_many("jobs", "text"),
    "no messages": lambda unit: unit.publish_many("jobs", []),
    "too many": lambda unit: unit.publish_many("jobs", range(10_001)),
    "receipt": lambda unit: unit.ack("not-a-receipt"),
    "id": lambda unit: unit.cancel("not-an-id"),
    "no ids": lambda unit: unit.free(),
    "kind": lambda unit: unit.put_document("", "name", 1),
    "value": lambda unit: unit.put_document("kind", "name", object()),
    "version": lambda unit: unit.put_document("kind", "name", 1, version=-1),
}


def test_a_bad_call_raises_at_its_line(store: Store) -> None:
    for what, call in BAD.items():
        with contextlib.suppress(tampu.TampuError), store.atomic() as unit:
            unit.publish("jobs", 1)
            with pytest.raises(tampu.InvalidMessage):
                call(unit)
            raise tampu.TampuError("enough")
        assert store.queues.list() == [], what


def test_a_unit_does_one_thing_with_each_message_and_document(store: Store) -> None:
    store.publish("jobs", 1)
    lease = claim(store)
    with contextlib.suppress(tampu.NotFound), store.atomic() as unit:
        unit.ack(lease)
        unit.put_document("cursor", "jobs", 1)
        for again in (
            lambda: unit.nack(lease.receipt),
            lambda: unit.cancel(lease.id),
            lambda: unit.put_document("cursor", "jobs", 2),
        ):
            with pytest.raises(tampu.InvalidMessage):
                again()
        raise tampu.NotFound("enough")
    assert store.get(lease.id).state == "leased"


def test_nothing_is_added_after_the_block(store: Store) -> None:
    with store.atomic() as unit:
        unit.publish("jobs", 1)
    with pytest.raises(tampu.InvalidState):
        unit.publish("jobs", 2)


# -- what refuses a unit


def _lost(store: Store, harness: Harness) -> tuple[type[tampu.TampuError], Callable[[tampu.Unit], Any]]:
    store.publish("jobs", 1)
    lease = store.claim("jobs", lease=10)[0]
    harness.clock.advance(20)
    harness.sweep()
    return tampu.LeaseLost, lambda unit: unit.ack(lease)


def _acked(store: Store, _harness: Harness) -> tuple[type[tampu.TampuError], Callable[[tampu.Unit], Any]]:
    store.publish("jobs", 1)
    lease = claim(store)
    store.ack(lease)
    store.ack(lease)  # alone, it may be said again
    return tampu.LeaseLost, lambda unit: unit.ack(lease)


def _full(store: Store, _harness: Harness) -> tuple[type[tampu.TampuError], Callable[[tampu.Unit], Any]]:
    store.queues.put("jobs", max_depth=2)
    store.publish("jobs", 1)
    return tampu.QueueFull, lambda unit: unit.publish_many("jobs", [2, 3])


def _conflict(store: Store, _harness: Harness) -> tuple[type[tampu.TampuError], Callable[[tampu.Unit], Any]]:
    store.publish("jobs", 1, idempotency_key="k")
    return tampu.IdempotencyConflict, lambda unit: unit.publish("jobs", 2, idempotency_key="k")


def _changed(store: Store, _harness: Harness) -> tuple[type[tampu.TampuError], Callable[[tampu.Unit], Any]]:
    with store.atomic() as unit:
        unit.put_document("cursor", "jobs", 1)
    return tampu.VersionConflict, lambda unit: unit.put_document("cursor", "jobs", 2, version=0)


def _unknown(store: Store, _harness: Harness) -> tuple[type[tampu.TampuError], Callable[[tampu.Unit], Any]]:
    return tampu.NotFound, lambda unit: unit.cancel("01890a5d-ac96-774b-bcce-b302099a8057")


def _over(store: Store, _harness: Harness) -> tuple[type[tampu.TampuError], Callable[[tampu.Unit], Any]]:
    store.publish("jobs", 1)
    lease = claim(store)
    store.ack(lease)
    return tampu.InvalidState, lambda unit: unit.cancel(lease.id)


def _free(store: Store, _harness: Harness) -> tuple[type[tampu.TampuError], Callable[[tampu.Unit], Any]]:
    made = store.publish("jobs", 1)
    return tampu.InvalidState, lambda unit: unit.free(made.id)


def _foreign(store: Store, harness: Harness) -> tuple[type[tampu.TampuError], Callable[[tampu.Unit], Any]]:
    theirs = harness.open(tenant="theirs").publish("jobs", 1)
    return tampu.NotFound, lambda unit: unit.cancel(theirs.id)


def _foreign_lease(store: Store, harness: Harness) -> tuple[type[tampu.TampuError], Callable[[tampu.Unit], Any]]:
    them = harness.open(tenant="theirs")
    them.publish("jobs", 1)
    lease = claim(them)
    return tampu.LeaseLost, lambda unit: unit.ack(lease)


REFUSED = (_lost, _acked, _full, _conflict, _changed, _unknown, _over, _free, _foreign, _foreign_lease)


@pytest.mark.parametrize("refused", REFUSED, ids=lambda make: make.__name__.strip("_"))
def test_a_refused_call_leaves_nothing_of_its_unit(harness: Harness, store: Store, refused: Callable[..., Any]) -> None:
    error, act = refused(store, harness)
    store.publish("others", 0)
    document = store.get_document("state", "x")

    def harmless(unit: tampu.Unit) -> None:
        unit.publish("others", 1)
        unit.publish("new", 1, delay=1)
        unit.put_document("state", "x", 1)

    with harness.unchanged(store):
        for calls in ([harmless, act], [act, harmless]):
            with pytest.raises(error):
                send(store, *calls)
    assert store.get_document("state", "x") == document
    assert store.publish("others", 2).state == "ready"
    assert [m.payload for m in store.messages("others")] == [0, 2]


def test_a_refused_unit_does_not_affect_others_of_its_commit(store: Store) -> None:
    store.publish_many("jobs", [1, 2])
    lost, kept = store.claim("jobs", limit=2)
    store.ack(lost)
    refused, plain, good = run(
        store,
        unit_of(store, publishes("a", 1), acks(lost)),
        AllVerbs(inside(store), store.tenant).publishing("b", [2]),
        unit_of(store, publishes("c", 3), acks(kept)),
    )
    assert isinstance(refused, tampu.LeaseLost)
    assert [m.payload for m in plain] == [2]
    assert [m.payload for m in good[0]] == [3]
    assert good[1][0].state == "done"
    assert store.queues.list() == ["b", "c", "jobs"]
    assert counts(store, "jobs") == {"done": 2}


def test_a_unit_is_not_refused_because_of_another_that_is(store: Store) -> None:
    store.queues.put("small", max_depth=1)
    store.publish("jobs", 1)
    lost = claim(store)
    store.ack(lost)
    refused, good = run(store, unit_of(store, publishes("small", 1), acks(lost)), unit_of(store, publishes("small", 2)))
    if "atomic:eventual" in inside(store).engine.capabilities:  # the second unit may take the only place first
        assert isinstance(refused, tampu.LeaseLost | tampu.QueueFull)
    else:
        assert isinstance(refused, tampu.LeaseLost)
    assert [m.payload for m in good[0]] == [2]
    assert [m.payload for m in store.messages("small")] == [2]


def test_a_lease_that_a_unit_extends_refuses_it_when_it_is_lost(harness: Harness, store: Store) -> None:
    store.publish("jobs", 1)
    lease = claim(store)
    extend = port.Extend(store.tenant, [("jobs", lease.receipt, 3600 * 1_000_000)])
    document = port.PutDocument("app:cursor", store.tenant, "x", b"1")
    unit = port.Together(store.tenant, [extend, document], NAME, 600_000_000)
    ((extended,), version) = run(store, unit)[0]
    assert extended.until_us == harness.clock.now() + 3600 * 1_000_000
    harness.clock.advance(1)
    assert run(store, unit) == [[[extended], version]], "the same again"
    store.ack(lease)
    (refused,) = run(store, port.Together(store.tenant, [extend, msgspec.structs.replace(document, value=b"2")]))
    assert isinstance(refused, tampu.LeaseLost)
    assert store.get_document("cursor", "x") == tampu.Document("cursor", "x", version, 1)


def test_two_units_that_settle_one_lease_take_effect_once(store: Store) -> None:
    store.publish("jobs", 1)
    lease = claim(store)
    replies = run(store, unit_of(store, publishes("a", 1), acks(lease)), unit_of(store, publishes("a", 2), acks(lease)))
    lost = [reply for reply in replies if isinstance(reply, tampu.LeaseLost)]
    (won,) = [reply for reply in replies if isinstance(reply, list)]
    assert len(lost) == 1
    assert [m.payload for m in store.messages("a")] == [won[0][0].payload]


def test_many_units_of_one_run_keep_the_depth_of_a_queue(store: Store) -> None:
    store.queues.put("jobs", max_depth=2)
    inside(store).settings.get(store.tenant, "jobs")
    replies = run(store, *(unit_of(store, publishes("jobs", n)) for n in range(4)))
    assert sum(isinstance(reply, tampu.QueueFull) for reply in replies) == 2
    assert counts(store, "jobs") == {"ready": 2}


# -- units with names


def test_a_unit_that_is_sent_again_under_its_name_is_answered_and_not_done_again(store: Store) -> None:
    store.publish("jobs", 1)
    held = store.publish("jobs", 2, hold="review")
    lease = claim(store)
    unit = unit_of(
        store,
        publishes("mails", 1, tampu.NewMessage(2, delay=60)),
        acks(lease),
        lambda made: made.ids_member("free", [held.id]),
        lambda made: made.document_member("cursor", "x", b"1", None),
        name=NAME,
    )
    (first,) = run(store, unit)
    store.ack(claim(store))
    (again,) = run(store, unit)
    assert [(m.id, m.state, m.payload, m.run_at) for m in again[0]] == [
        (m.id, m.state, m.payload, m.run_at) for m in first[0]
    ]
    assert [m.duplicate for m in again[0]] == [True, True]
    assert again[1:] == first[1:]
    assert counts(store, "mails") == {"ready": 1, "delayed": 1}
    assert counts(store, "jobs") == {"done": 2}


def test_the_same_unit_twice_in_one_run_takes_effect_once(store: Store) -> None:
    unit = unit_of(store, publishes("mails", 1), name=NAME)
    first, again = run(store, unit, unit)
    assert first[0][0].id == again[0][0].id
    assert counts(store, "mails") == {"ready": 1}


def test_a_refused_unit_leaves_its_name_free(store: Store) -> None:
    store.queues.put("mails", max_depth=1)
    inside(store).settings.get(store.tenant, "mails")
    store.publish("mails", 0)
    unit = unit_of(store, publishes("mails", 1), name=NAME)
    assert isinstance(run(store, unit)[0], tampu.QueueFull)
    store.ack(claim(store, "mails"))
    assert run(store, unit)[0][0][0].payload == 1


def test_another_unit_under_the_same_name_is_refused(harness: Harness, store: Store) -> None:
    run(store, unit_of(store, publishes("mails", 1), name=NAME))
    assert isinstance(run(store, unit_of(store, publishes("mails", 2), name=NAME))[0], tampu.IdempotencyConflict)
    theirs = harness.open(tenant="theirs")
    assert run(theirs, unit_of(theirs, publishes("mails", 2), name=NAME))[0][0][0].payload == 2


def test_the_name_of_a_unit_is_forgotten_after_its_time(harness: Harness, store: Store) -> None:
    unit = unit_of(store, publishes("mails", 1), name=NAME)
    run(store, unit)
    harness.clock.advance(700)
    harness.trim()
    run(store, unit)
    assert counts(store, "mails") == {"ready": 2}


# -- awaitable


async def refused(store: tampu.AsyncStore, lease: tampu.Lease) -> None:
    async with store.atomic() as unit:
        unit.publish("mails", 3)
        unit.ack(lease)


def test_a_unit_can_be_awaited(harness: Harness) -> None:
    async def story() -> None:
        async with tampu.open_async(**harness.opening()) as store:
            await store.publish("jobs", 1)
            (lease,) = await store.claim("jobs")
            async with store.atomic() as unit:
                unit.ack(lease)
                made = unit.publish("mails", 2)
                unit.put_document("cursor", "x", 1)
            assert (await store.get(made.value.id)).payload == 2
            with pytest.raises(tampu.LeaseLost):
                await refused(store, lease)
            document = await store.get_document("cursor", "x")
            assert document is not None
            assert document.value == 1
            assert (await store.stats("mails")).counts["ready"] == 1

    asyncio.run(story())
