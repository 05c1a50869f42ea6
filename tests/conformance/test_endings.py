"""What policies ask of an engine: messages that end as they are stored, and waiting messages that become dead."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import tampu
from tampu.broker import validate
from tampu.broker.settings import resolve
from tampu.broker.store import Store
from tampu.engines import port
from tampu.model.config import BUILT_IN
from tampu.model.message import NewMessage, State
from tampu.model.values import pack_body
from tests.conformance.harness import Harness, counts, inside, payloads, verbs

SETTINGS = resolve(BUILT_IN)
DEAD = port.Ending(State.DEAD, "schema_invalid", "the field to is missing")
CANCELLED = port.Ending(State.CANCELLED, "not wanted here")


def item(payload: object, ends: port.Ending | None = None, group: str | None = None, **fields: Any) -> port.Item:
    """An item as policies make it; ``group`` is limited by the queue."""
    if ends is not None:
        fields["hold"] = "by a rule"
    made = validate.item("jobs", SETTINGS, NewMessage(payload, group=group, **fields))
    return msgspec.structs.replace(made, ends=ends, group=group)


def publish(*items: port.Item, queue: str = "jobs", **fields: Any) -> port.Publish:
    return port.Publish("default", queue, items, **fields)


def run(store: Store, *calls: Any) -> list[Any]:
    """Carry these out in one run of the engine."""
    return inside(store).engine.run(list(calls))


def only(store: Store, call: Any) -> Any:
    """The first of the reply of one call."""
    (reply,) = run(store, call)
    assert isinstance(reply, list), reply
    return reply[0]


def replay(*ids: str, **fields: Any) -> port.Replay:
    return port.Replay("default", ids, [3] * len(ids), **fields)


def history(store: Store, id: str) -> list[tuple[str, str | None, str | None]]:
    """(verb, state, detail) of each transition of a message."""
    return [(t.verb, t.state, t.detail) for t in store.journal(limit=1000).transitions if t.id == id]


# -- messages that end as they are stored


def test_a_message_can_be_dead_as_it_is_stored(store: Store, harness: Harness) -> None:
    made = only(store, publish(item({"n": 1}, DEAD, delay=60)))
    assert (made.state, made.reason, made.last_error, made.duplicate) == ("dead", DEAD.reason, DEAD.error, False)
    assert (made.run_us, made.ended_us) == (None, harness.clock.now())
    seen = store.get(made.id)
    assert (seen.state, seen.reason, seen.last_error, seen.payload) == ("dead", DEAD.reason, DEAD.error, {"n": 1})
    assert (seen.attempts, seen.ended_us, seen.run_us) == (0, made.ended_us, None)
    assert [(f.attempt, f.outcome, f.error) for f in seen.failures] == [(0, "reject", DEAD.error)]
    assert history(store, made.id) == [("publish", "held", None), ("reject", "dead", DEAD.reason)]
    assert counts(store, "jobs") == {"dead": 1}
    assert [m.id for m in store.messages("jobs", state="dead")] == [made.id]
    harness.clock.advance(60)
    harness.sweep()
    assert store.claim("jobs") == []


def test_a_message_can_be_cancelled_as_it_is_stored(store: Store) -> None:
    made = only(store, publish(item(1, CANCELLED)))
    assert (made.state, made.reason, made.last_error) == ("cancelled", CANCELLED.reason, None)
    seen = store.get(made.id)
    assert (seen.state, seen.failures) == ("cancelled", ())
    assert history(store, made.id) == [("publish", "held", None), ("cancel", "cancelled", CANCELLED.reason)]
    assert counts(store, "jobs") == {"cancelled": 1}
    assert [m.id for m in store.messages("jobs", state="cancelled")] == [made.id]


def test_a_dead_one_can_be_replayed(store: Store) -> None:
    made = only(store, publish(item("again", DEAD)))
    assert only(store, replay(made.id)).state == "ready"
    (lease,) = store.claim("jobs")
    assert (lease.id, lease.payload) == (made.id, "again")
    store.ack(lease)
    assert verbs(store, made.id) == ["publish", "reject", "replay", "claim", "ack"]


def test_a_dead_one_without_an_error_has_none(store: Store) -> None:
    made = only(store, publish(item(1, port.Ending(State.DEAD, "refused"))))
    assert (store.get(made.id).reason, store.get(made.id).last_error) == ("refused", None)


def test_messages_of_a_batch_end_each_in_its_own_way(store: Store) -> None:
    given = "0198c0de-0000-4000-8000-000000000001"
    other = port.Ending(State.DEAD, "oversize")
    items = [item("a"), item("b", DEAD), item("c", CANCELLED), item("d", other, id=given), item("e", DEAD), item("f")]
    (made,) = run(store, publish(*items))
    assert [m.state for m in made] == ["ready", "dead", "cancelled", "dead", "dead", "ready"]
    assert [m.reason for m in made] == [None, DEAD.reason, CANCELLED.reason, "oversize", DEAD.reason, None]
    assert made[3].id == given
    assert [store.get(m.id).state for m in made] == [m.state for m in made]
    assert history(store, given) == [("publish", "held", None), ("reject", "dead", "oversize")]
    assert payloads(store.claim("jobs", limit=10)) == ["a", "f"]
    assert counts(store, "jobs") == {"leased": 2, "dead": 3, "cancelled": 1}


def test_publishes_of_one_run_end_each_in_its_own_way(store: Store) -> None:
    replies = run(
        store, publish(item(1, DEAD)), publish(item(2)), publish(item(3, hold="x")), publish(item(4, DEAD), item(5))
    )
    states = [m.state for reply in replies for m in reply]
    assert states == ["dead", "ready", "held", "dead", "ready"]
    for message in (replies[0][0], replies[3][0]):
        assert history(store, message.id) == [("publish", "held", None), ("reject", "dead", DEAD.reason)]


@pytest.mark.parametrize("fields", [{"idempotency_key": "i"}, {"id": "0198c0de-0000-4000-8000-000000000002"}])
def test_a_known_message_ends_only_once(store: Store, harness: Harness, fields: dict[str, Any]) -> None:
    call = publish(item("x", DEAD, **fields))
    made = only(store, call)
    with harness.unchanged(store):
        again = only(store, call)
    assert (again.id, again.state, again.reason, again.duplicate) == (made.id, "dead", DEAD.reason, True)
    only(store, replay(made.id))
    with harness.unchanged(store):
        assert (only(store, call).state, only(store, call).duplicate) == ("ready", True)


def test_a_known_message_that_waits_does_not_end(store: Store, harness: Harness) -> None:
    id = "0198c0de-0000-4000-8000-000000000003"
    only(store, publish(item("x", id=id)))
    with harness.unchanged(store):
        assert only(store, publish(item("x", DEAD, id=id))).state == "ready"


def test_the_same_message_twice_in_a_call_ends_once(store: Store) -> None:
    one = item("x", DEAD, id="0198c0de-0000-4000-8000-000000000004")
    (made,) = run(store, publish(one, one))
    assert [(m.state, m.reason, m.last_error, m.duplicate) for m in made] == [
        ("dead", DEAD.reason, DEAD.error, False), ("dead", DEAD.reason, DEAD.error, True),
    ]  # fmt: skip
    assert verbs(store) == ["publish", "reject"]


def test_a_message_that_ends_leaves_its_key_alone(store: Store) -> None:
    waiting = store.publish("jobs", "good", key="k")
    (made,) = run(
        store, publish(item("bad", DEAD, key="k"), item("worse", DEAD, key="other"), item("new", key="other"))
    )
    assert [(m.state, m.duplicate) for m in made] == [("dead", False), ("dead", False), ("ready", False)]
    assert store.get(waiting.id).payload == "good"
    assert store.publish("jobs", "better", key="k").id == waiting.id
    assert store.publish("jobs", "newer", key="other").id == made[2].id
    assert verbs(store, made[0].id) == ["publish", "reject"]


def test_a_message_that_ends_does_not_expire(store: Store, harness: Harness) -> None:
    made = only(store, publish(item(1, DEAD, ttl=10)))
    assert inside(store).engine.next_due() is None
    harness.clock.advance(20)
    assert harness.sweep() == 0
    assert store.get(made.id).state == "dead"


def test_messages_that_end_do_not_count_for_max_depth(store: Store) -> None:
    (made,) = run(store, publish(item(1, DEAD), item(2), item(3, CANCELLED), max_depth=1))
    assert [m.state for m in made] == ["dead", "ready", "cancelled"]
    ended, refused = run(store, publish(item(4, DEAD), max_depth=1), publish(item(5), max_depth=1))
    assert ended[0].state == "dead"
    assert isinstance(refused, tampu.QueueFull)


def test_a_message_that_ends_takes_no_slot_of_its_group(store: Store) -> None:
    (made,) = run(store, publish(item(1, DEAD, group="g"), item(2, group="g"), item(3, group="g"), slots=1))
    assert [m.state for m in made] == ["dead", "ready", "held"]
    (lease,) = store.claim("jobs", limit=5)
    assert only(store, publish(item(4, CANCELLED, group="g"), slots=1)).state == "cancelled"
    assert store.claim("jobs") == []
    assert only(store, replay(made[0].id)).state == "held"
    store.ack(lease)
    assert payloads(store.claim("jobs", limit=5)) in ([3], [1])


def test_messages_end_in_a_unit(store: Store, harness: Harness) -> None:
    unit = port.Together("default", [publish(item(1, DEAD), item(2, CANCELLED), item(3))], "unit", 600_000_000)
    ((made,),) = run(store, unit)
    assert [(m.state, m.reason) for m in made] == [
        ("dead", DEAD.reason), ("cancelled", CANCELLED.reason), ("ready", None),
    ]  # fmt: skip
    assert history(store, made[0].id) == [("publish", "held", None), ("reject", "dead", DEAD.reason)]
    with harness.unchanged(store):
        ((again,),) = run(store, unit)
    assert [(m.id, m.state, m.reason) for m in again] == [(m.id, m.state, m.reason) for m in made]


def test_messages_end_in_a_unit_over_several_queues(store: Store) -> None:
    calls = [publish(item(1), queue="a"), publish(item(2, DEAD), queue="b"), publish(item(3, CANCELLED), queue="c")]
    (replies,) = run(store, port.Together("default", calls))
    assert [reply[0].state for reply in replies] == ["ready", "dead", "cancelled"]
    assert [counts(store, queue) for queue in "abc"] == [{"ready": 1}, {"dead": 1}, {"cancelled": 1}]


# -- waiting messages that become dead


def cancel(*ids: str, **fields: Any) -> port.Cancel:
    return port.Cancel("default", ids, **fields)


@pytest.mark.parametrize("fields", [{}, {"delay": 60}, {"hold": "x"}], ids=["ready", "delayed", "held"])
def test_a_waiting_message_becomes_dead(store: Store, harness: Harness, fields: dict[str, Any]) -> None:
    message = store.publish("jobs", 1, key="k", ttl=100, **fields)
    outcome = only(store, cancel(message.id, dead="refused", error="ann: not like this"))
    assert (outcome.id, outcome.state, outcome.error) == (message.id, "dead", None)
    seen = store.get(message.id)
    assert (seen.state, seen.reason, seen.last_error) == ("dead", "refused", "ann: not like this")
    assert seen.ended_us == harness.clock.now()
    assert history(store, message.id)[1:] == [("reject", "dead", "refused")]
    assert counts(store, "jobs") == {"dead": 1}
    assert not store.publish("jobs", 2, key="k").duplicate
    harness.clock.advance(200)
    harness.sweep()
    assert store.get(message.id).state == "dead"
    assert only(store, replay(message.id)).state == "ready"


def test_the_last_error_is_that_of_the_rejection(store: Store) -> None:
    message = store.publish("jobs", 1)
    store.nack(store.claim("jobs")[0], error="first", delay=60)
    only(store, cancel(message.id, dead="refused", error="second"))
    seen = store.get(message.id)
    assert (seen.last_error, [f.error for f in seen.failures]) == ("second", ["first", "second"])
    assert seen.attempts == 1
    other = store.publish("jobs", 2)
    store.nack(store.claim("jobs")[0], error="first", delay=60)
    only(store, cancel(other.id, dead="refused"))
    assert store.get(other.id).last_error is None


def test_making_a_message_dead_again_for_the_same_reason_is_fine(store: Store, harness: Harness) -> None:
    message = store.publish("jobs", 1)
    only(store, cancel(message.id, dead="refused", error="e"))
    with harness.unchanged(store):
        assert only(store, cancel(message.id, dead="refused", error="e")).state == "dead"
        assert isinstance(only(store, cancel(message.id, dead="another")).error, tampu.InvalidState)
        assert isinstance(only(store, cancel(message.id)).error, tampu.InvalidState)


def test_only_waiting_messages_become_dead(store: Store, harness: Harness) -> None:
    done, leased, gone, waiting = store.publish_many("jobs", ["done", "leased", "cancelled", "waiting"])
    store.cancel(gone.id)
    lease, _ = store.claim("jobs", limit=2)
    store.ack(lease)
    nobody = "019b76da-a800-7000-8000-000000000001"
    with harness.unchanged(store):
        (outcomes,) = run(store, cancel(done.id, leased.id, gone.id, nobody, dead="refused"))
    assert [type(o.error) for o in outcomes] == [tampu.InvalidState] * 3 + [tampu.NotFound]
    assert not store.get(leased.id).cancel_requested
    (outcomes,) = run(store, cancel(leased.id, waiting.id, dead="refused"))
    assert [o.ok for o in outcomes] == [False, True]


def test_a_message_that_becomes_dead_leaves_its_slot_to_the_next(store: Store) -> None:
    (made,) = run(store, publish(item(1, group="g"), item(2, group="g"), item(3, group="g"), slots=1))
    assert [m.state for m in made] == ["ready", "held", "held"]
    (outcomes,) = run(store, cancel(made[0].id, made[1].id, dead="refused"))
    assert [o.state for o in outcomes] == ["dead", "dead"]
    assert payloads(store.claim("jobs", limit=5)) == [3]


def test_a_cancel_can_say_why(store: Store) -> None:
    message, leased = store.publish("jobs", 1, delay=60), store.publish("jobs", 2)
    store.claim("jobs")
    run(store, cancel(message.id, leased.id, reason="nobody wants it"))
    assert history(store, message.id)[-1] == ("cancel", "cancelled", "nobody wants it")
    assert history(store, leased.id)[-1] == ("ask_cancel", "leased", "nobody wants it")


def test_a_unit_can_make_messages_dead(store: Store, harness: Harness) -> None:
    one, two, three, four = store.publish_many("jobs", range(4))
    unit = port.Together(
        "default",
        [cancel(one.id, dead="refused", error="e"), cancel(two.id, reason="r"), cancel(three.id, dead="other")],
    )
    (replies,) = run(store, unit)
    assert [outcome.state for (outcome,) in replies] == ["dead", "cancelled", "dead"]
    assert [store.get(m.id).reason for m in (one, three)] == ["refused", "other"]
    assert history(store, one.id)[-1] == ("reject", "dead", "refused")
    assert history(store, two.id)[-1] == ("cancel", "cancelled", "r")
    (again,) = run(store, port.Together("default", [cancel(one.id, dead="refused"), cancel(four.id, dead="refused")]))
    assert [outcome.state for (outcome,) in again] == ["dead", "dead"]


@pytest.mark.parametrize("state", ["leased", "dead", "cancelled"])
def test_a_unit_is_refused_if_a_message_cannot_become_dead(store: Store, harness: Harness, state: str) -> None:
    message, other = store.publish("jobs", 1), store.publish("jobs", 2, delay=60)
    if state == "leased":
        store.claim("jobs")
    else:
        run(store, cancel(message.id, dead="another" if state == "dead" else None))
    with harness.unchanged(store):
        (refused,) = run(
            store, port.Together("default", [cancel(other.id), cancel(message.id, dead="refused"), publish(item(3))])
        )
    assert isinstance(refused, tampu.InvalidState)


# -- leases that end by holding their message


def release(lease: tampu.Lease, hold: str | None = "review", **fields: Any) -> port.Settle:
    return port.Settle("default", [port.SettleItem("release", lease.queue, lease.receipt, hold=hold, **fields)])


def free(*ids: str, **fields: Any) -> port.Free:
    return port.Free("default", ids, **fields)


def test_a_lease_can_end_by_holding_its_message(store: Store, harness: Harness) -> None:
    message = store.publish("jobs", 1, ttl=600, key="k")
    (lease,) = store.claim("jobs", worker="w1", lease=30)
    outcome = only(store, release(lease))
    assert (outcome.id, outcome.state) == (message.id, "held")
    seen = store.get(message.id)
    assert (seen.state, seen.reason, seen.attempts, seen.failures, seen.run_us) == ("held", "review", 0, (), None)
    assert history(store, message.id)[-1] == ("release", "held", "review")
    assert store.journal().transitions[-1].worker == "w1"
    assert counts(store, "jobs") == {"held": 1}
    assert [m.id for m in store.messages("jobs", state="held")] == [message.id]
    assert store.publish("jobs", 2, key="k").id == message.id, "it waits again, with its key"
    harness.clock.advance(60)
    harness.sweep()
    assert store.claim("jobs") == []
    assert store.get(message.id).state == "held"
    assert only(store, free(message.id)).state == "ready"
    (again,) = store.claim("jobs")
    assert (again.id, again.attempt, again.payload) == (message.id, 1, 2)
    store.ack(again)
    harness.clock.advance(600)
    assert harness.sweep() == 0


def test_a_held_one_expires(store: Store, harness: Harness) -> None:
    message = store.publish("jobs", 1, ttl=60)
    only(store, release(store.claim("jobs")[0]))
    harness.clock.advance(60)
    harness.sweep()
    assert store.get(message.id).state == "expired"


def test_a_repeated_release_gets_the_same_answer(store: Store, harness: Harness) -> None:
    message = store.publish("jobs", 1)
    (lease,) = store.claim("jobs")
    only(store, release(lease))
    with harness.unchanged(store):
        again = only(store, release(lease))
        assert (again.id, again.state, again.error) == (message.id, "held", None)
        for other in (store.ack, store.nack, store.reject):
            with pytest.raises(tampu.LeaseLost):
                other(lease)
    one, two = store.publish_many("jobs", [2, 3])
    leases = store.claim("jobs", limit=2)
    first, second = run(store, release(leases[0]), release(leases[0]))
    assert (first[0].state, second[0].state) == ("held", "held")
    assert only(store, release(leases[1], hold=None)).state == "ready"
    assert [store.get(m.id).state for m in (one, two)] == ["held", "ready"]


def test_a_release_that_holds_has_no_delay(store: Store, harness: Harness) -> None:
    message = store.publish("jobs", 1)
    only(store, release(store.claim("jobs")[0], delay_us=10_000_000))
    assert (store.get(message.id).state, store.get(message.id).run_us) == ("held", None)
    harness.clock.advance(20)
    assert (harness.sweep(), store.claim("jobs")) == (0, [])


def test_a_message_that_shall_be_cancelled_is_not_held(store: Store) -> None:
    message = store.publish("jobs", 1)
    (lease,) = store.claim("jobs")
    store.cancel(message.id)
    assert only(store, release(lease)).state == "cancelled"


def test_a_lease_that_is_over_holds_nothing(store: Store, harness: Harness) -> None:
    store.publish("jobs", 1)
    (lease,) = store.claim("jobs")
    store.ack(lease)
    with harness.unchanged(store):
        assert isinstance(only(store, release(lease)).error, tampu.LeaseLost)


@pytest.mark.parametrize("slots", [0, 1], ids=["ordered", "limited"])
def test_a_message_that_is_held_leaves_its_slot_until_it_is_freed(store: Store, slots: int) -> None:
    (made,) = run(store, publish(*(item(n, group="g") for n in range(3)), slots=slots))
    (lease,) = store.claim("jobs", limit=5)
    only(store, release(lease))
    (second,) = store.claim("jobs", limit=5)
    assert second.payload == 1
    assert only(store, free(made[0].id)).state == "held", "another has the slot"
    assert store.get(made[0].id).reason == "group"
    store.ack(second)
    (third,) = store.claim("jobs", limit=5)
    store.ack(third)
    (last,) = store.claim("jobs", limit=5)
    assert {third.payload, last.payload} == {0, 2}
    assert store.get(last.id).attempts == 1


def test_a_message_of_a_group_with_a_rate_can_be_held(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", group_rate=1.0)
    message, other = (store.publish("jobs", n, group="g") for n in range(2))
    only(store, release(store.claim("jobs")[0]))
    harness.clock.advance(1)
    harness.sweep()
    assert payloads(store.claim("jobs", limit=5)) == [1]
    assert only(store, free(message.id)).state == "delayed"
    harness.clock.advance(1)
    harness.sweep()
    assert payloads(store.claim("jobs", limit=5)) == [0]
    assert store.get(other.id).state == "leased"


def test_a_unit_can_hold_a_message(store: Store, harness: Harness) -> None:
    message = store.publish("jobs", 1)
    (lease,) = store.claim("jobs")
    unit = port.Together("default", [msgspec.structs.replace(release(lease), strict=True), publish(item("question"))])
    (replies,) = run(store, unit)
    assert (replies[0][0].state, replies[1][0].state) == ("held", "ready")
    assert store.get(message.id).reason == "review"
    with harness.unchanged(store):
        (refused,) = run(store, unit)
    assert isinstance(refused, tampu.LeaseLost)


def test_a_held_message_can_end(store: Store) -> None:
    one, two = store.publish_many("jobs", range(2))
    for lease in store.claim("jobs", limit=2):
        only(store, release(lease))
    assert only(store, cancel(one.id, dead="refused")).state == "dead"
    assert only(store, cancel(two.id)).state == "cancelled"
    assert verbs(store, one.id) == ["publish", "claim", "release", "reject"]


# -- held messages that are freed with another body


def body_of(message: tampu.Message, payload: object, **fields: Any) -> bytes:
    """The body of a message with another payload."""
    encoded = msgspec.json.encode(payload)
    return pack_body(msgspec.structs.replace(message.body, payload=encoded, **fields))


def test_a_held_message_is_freed_with_another_body(store: Store, harness: Harness) -> None:
    one, two = store.publish_many(
        "jobs", [tampu.NewMessage(n, hold="x", key=f"k{n}", priority=5, headers={"a": "1"}) for n in range(2)]
    )
    body = body_of(one, {"edited": True}, type="edited", headers={"b": "2"}, priority=1, hold=None)
    (outcomes,) = run(store, free(one.id, two.id, bodies=[body, None], actor="ann"))
    assert [o.state for o in outcomes] == ["ready", "ready"]
    seen = store.get(one.id)
    assert (seen.payload, seen.type, seen.headers) == ({"edited": True}, "edited", {"b": "2"})
    assert (seen.id, seen.priority, seen.key, seen.body.hold) == (one.id, 5, "k0", "x")
    assert store.get(two.id).payload == 1
    assert payloads(store.claim("jobs", limit=5)) == [{"edited": True}, 1]
    moves = [t for t in store.journal().transitions if t.id == one.id]
    assert [(t.verb, t.state, t.type, t.worker) for t in moves] == [
        ("publish", "held", "message", None), ("replace", "held", "edited", "ann"), ("free", "ready", None, "ann"),
        ("claim", "leased", None, None),
    ]  # fmt: skip
    assert verbs(store, two.id) == ["publish", "free", "claim"]


def test_a_released_message_is_freed_with_another_body(store: Store) -> None:
    message = store.publish("jobs", "old")
    only(store, release(store.claim("jobs")[0]))
    assert only(store, free(message.id, bodies=[body_of(message, "new")])).state == "ready"
    (lease,) = store.claim("jobs")
    assert (lease.id, lease.payload, lease.attempt) == (message.id, "new", 1)
    store.reject(lease)
    assert only(store, replay(message.id)).state == "ready"
    assert payloads(store.claim("jobs")) == ["new"]


def test_a_message_that_is_not_freed_keeps_its_body(store: Store, harness: Harness) -> None:
    ready = store.publish("jobs", "ready")
    (_, waits) = only(store, port.Together("default", [publish(item(1, group="g"), item(2, group="g"), slots=1)]))
    nobody = "019b76da-a800-7000-8000-000000000001"
    ids = [ready.id, waits.id, nobody]
    with harness.unchanged(store):
        (outcomes,) = run(store, free(*ids, bodies=[body_of(ready, "new")] * 3))
    assert [type(o.error) for o in outcomes] == [tampu.InvalidState, tampu.InvalidState, tampu.NotFound]


def test_a_message_freed_twice_in_a_call_has_the_first_body(store: Store) -> None:
    message = store.publish("jobs", 0, hold="x")
    bodies = [body_of(message, 1), body_of(message, 2)]
    (outcomes,) = run(store, free(message.id, message.id, bodies=bodies))
    assert [o.ok for o in outcomes] == [True, False]
    assert payloads(store.claim("jobs")) == [1]


def test_calls_of_one_run_free_messages_with_and_without_bodies(store: Store) -> None:
    one, two = store.publish_many("jobs", [tampu.NewMessage(n, hold="x") for n in range(2)])
    run(store, free(one.id), free(two.id, bodies=[body_of(two, "new")]))
    assert verbs(store, one.id) == ["publish", "free"]
    assert verbs(store, two.id) == ["publish", "replace", "free"]


def test_a_unit_frees_messages_with_other_bodies(store: Store, harness: Harness) -> None:
    messages = store.publish_many("jobs", [tampu.NewMessage(n, hold="x") for n in range(4)])
    one, two, three, four = messages
    calls: list[port.Free | port.Cancel] = [
        free(one.id), free(two.id, three.id, bodies=[None, body_of(three, "new")]), cancel(four.id, dead="refused"),
    ]  # fmt: skip
    unit = port.Together("default", calls, "unit", 600_000_000)
    (replies,) = run(store, unit)
    assert [o.state for reply in replies for o in reply] == ["ready", "ready", "ready", "dead"]
    assert [store.get(m.id).payload for m in messages] == [0, 1, "new", 3]
    with harness.unchanged(store):
        (again,) = run(store, unit)
        other = [calls[0], free(two.id, three.id, bodies=[None, body_of(three, "newer")]), calls[2]]
        (conflict,) = run(store, port.Together("default", other, "unit", 600_000_000))
    assert [o.state for reply in again for o in reply] == ["ready", "ready", "ready", "dead"]
    assert isinstance(conflict, tampu.IdempotencyConflict)


# -- who did it


def test_the_journal_says_who_did_it(store: Store) -> None:
    held, waiting, leased, rejected = (
        store.publish("jobs", n, **({"hold": "x"} if n == 0 else {"delay": 60} if n in (1, 3) else {}))
        for n in range(4)
    )
    store.claim("jobs", worker="w1")
    only(store, free(held.id, actor="ann"))
    run(store, cancel(waiting.id, leased.id, actor="bob"), cancel(rejected.id, dead="refused", actor="cem"))
    assert store.get(rejected.id).failures[0].worker == "cem"
    only(store, replay(rejected.id, actor="dee"))
    run(store, port.Purge("default", "jobs", State.READY, 10, actor="eve"))
    found = [(t.verb, t.worker) for t in store.journal().transitions if t.verb != "publish"]
    assert sorted(found) == sorted(
        [("claim", "w1"), ("free", "ann"), ("cancel", "bob"), ("ask_cancel", "bob"), ("reject", "cem"),
         ("replay", "dee"), ("purge", "eve"), ("purge", "eve")]
    )  # fmt: skip


def test_two_of_one_run_stay_apart(store: Store) -> None:
    messages = store.publish_many("jobs", [tampu.NewMessage(n, hold="x") for n in range(3)])
    calls = [free(m.id, actor=actor) for m, actor in zip(messages, ("ann", None, "bob"), strict=True)]
    run(store, calls[0], port.Together("default", calls[1:]))
    found = {t.id: t.worker for t in store.journal().transitions if t.verb == "free"}
    assert [found[m.id] for m in messages] == ["ann", None, "bob"]


def test_who_frees_a_slot_is_not_who_frees_the_next_message(store: Store) -> None:
    (made,) = run(store, publish(item(1, group="g"), item(2, group="g"), slots=1))
    only(store, cancel(made[0].id, actor="ann"))
    assert [(t.verb, t.worker) for t in store.journal().transitions if t.id == made[1].id] == [
        ("publish", None), ("free", None),
    ]  # fmt: skip
