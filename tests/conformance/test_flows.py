"""Flows: members wait for their parents, get their results, and have a policy for failures. Each runs once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from typing import Any

import pytest

import tampu
from tampu import FlowMember, NewMessage
from tampu.broker import access
from tampu.broker.policies.flows import results
from tampu.broker.policies.flows.follower import FlowFollower
from tampu.broker.policies.flows.verbs import FlowVerbs
from tampu.broker.store import Store
from tampu.engines.port import Cancel, Free, Settle, SettleItem, Together
from tampu.maintenance.follower import Follower
from tampu.model.errors import InvalidState, LeaseLost, NotFound, Unavailable
from tampu.model.outcome import Outcome
from tests.conformance.harness import Harness, Refusals, counts, inside, until, verbs
from tests.model.flow_model import FlowModel

WEEK = 7 * 86_400


def member(payload: Any = None, *after: Any, queue: str = "jobs", **more: Any) -> FlowMember:
    """A member that waits for others, whose results are its payload unless ``into`` says otherwise."""
    into = more.pop("into", "" if after else None)
    return FlowMember(queue=queue, message=NewMessage(payload), after=after, into=into, **more)


def members_of(store: Store, flow: str) -> list[str]:
    return [one.id for one in store.flows.get(flow, limit=20_000).members]


def states(store: Store, flow: str) -> list[str]:
    return [one.state for one in store.flows.get(flow, limit=100).members]


def work(store: Store, harness: Harness, *results: Any, queue: str = "jobs") -> list[Any]:
    """Claim a message for each result and ack it, or reject it for an exception; the payloads."""
    seen = []
    for result in results:
        (lease,) = store.claim(queue)
        seen.append(lease.payload)
        if isinstance(result, Exception):
            store.reject(lease, "broken")
        else:
            store.ack(lease, result)
        harness.follow()
    return seen


def frees(store: Store, ids: Iterable[str]) -> list[int]:
    """How often each message was freed."""
    moves = [(t.verb, t.id) for t in store.journal(limit=100_000).transitions]
    return [moves.count(("free", id)) for id in ids]


def test_a_member_waits_for_its_parent_and_gets_its_result(store: Store, harness: Harness) -> None:
    flow = store.flows.publish([member(1), member({"size": 200}, 0, into="image"), member(None, 1)], name="thumbnails")
    harness.follow()
    assert counts(store, "jobs") == {"ready": 1, "held": 2}
    assert work(store, harness, {"url": "a"}, "small", None) == [1, {"size": 200, "image": {"url": "a"}}, "small"]
    found = store.flows.get(flow, limit=10)
    assert (found.name, found.status, found.total, found.counts) == ("thumbnails", "done", 3, {"done": 3})
    assert [(one.state, one.parents, one.after) for one in found.members[1:]] == [
        ("done", 1, (found.members[0].id,)), ("done", 1, (found.members[1].id,)),
    ]  # fmt: skip
    assert len(store.trace(flow)) == 3
    assert store.flows.wait(flow, wait=60).ended_at == found.ended_at is not None


def test_a_fan_in_fires_once_with_all_results_in_order(store: Store, harness: Harness) -> None:
    wide = 300  # more than one document of letters has
    flow = store.flows.publish([*(member(n) for n in range(wide)), member(None, (0, wide), queue="sums")])
    join = members_of(store, flow)[-1]
    leases = store.claim("jobs", limit=wide)
    random.Random(1).shuffle(leases)
    for start in range(0, wide, 70):
        harness.follow()
        assert store.get(join).state == "held"
        store.settle([tampu.Ack(lease, lease.payload * 2) for lease in leases[start : start + 70]])
    harness.follow()
    harness.follow()
    assert work(store, harness, None, queue="sums") == [[2 * n for n in range(wide)]]
    assert frees(store, [join]) == [1]
    assert store.flows.get(flow).status == "done"


def test_what_happens_when_a_parent_dies(store: Store, harness: Harness) -> None:
    flow = store.flows.publish([
        member(0), member(1), member(None, 0, 1), member(None, 2), member(None, 0, 1, on_failure="skip"),
        member(None, 4), member("runs", 0, 1, on_failure="run", into=None), member(None, 0, 1, on_failure="run"),
    ])  # fmt: skip
    assert work(store, harness, ValueError(), "one") == [0, 1]
    assert states(store, flow) == ["dead", "done", "blocked", "blocked", "skipped", "skipped", "ready", "ready"]
    assert work(store, harness, "ran", "ran") == ["runs", [None, "one"]]
    found = store.flows.get(flow)
    assert (found.status, found.counts) == ("failed", {"dead": 1, "done": 3, "blocked": 2, "skipped": 2})
    assert store.flows.replay(flow) == 1
    harness.follow()
    assert store.flows.get(flow).status == "running"
    assert states(store, flow)[2:4] == ["held", "held"]
    assert work(store, harness, "zero", "two", "three") == [0, ["zero", "one"], "two"]
    assert store.flows.get(flow).status == "done"
    assert frees(store, members_of(store, flow)) == [0, 0, 1, 1, 0, 0, 1, 1]


def test_a_failure_that_all_children_take_is_none_of_the_flow(store: Store, harness: Harness) -> None:
    flow = store.flows.publish([member(0), member("after", 0, on_failure="run", into=None)])
    assert work(store, harness, ValueError(), None) == [0, "after"]
    assert store.flows.get(flow).status == "done"


@pytest.mark.parametrize("way", ["cancel", "purge", "expire"])
def test_a_parent_that_can_never_be_done_cancels_those_that_wait(store: Store, harness: Harness, way: str) -> None:
    first = FlowMember(queue="jobs", message=NewMessage(0, ttl=60))
    flow = store.flows.publish([first, member(None, 0), member(None, 1)])
    harness.follow()
    if way == "cancel":
        store.cancel(members_of(store, flow)[0])
    elif way == "purge":
        store.purge("jobs", state="ready")
    else:
        harness.clock.advance(60)
        harness.sweep()
    harness.follow()
    assert states(store, flow)[1:] == ["cancelled", "cancelled"]
    assert [store.get(id).state for id in members_of(store, flow)[1:]] == ["cancelled", "cancelled"]
    assert store.flows.get(flow).status == "failed"


def test_cancel_ends_all_that_is_open(store: Store, harness: Harness) -> None:
    flow = store.flows.publish([member(0), member(1), member(None, 0, on_failure="run"), member(None, 1, 2)])
    (lease,) = store.claim("jobs")
    harness.follow()
    assert store.flows.cancel(flow).total == 4
    harness.follow()
    assert states(store, flow) == ["leased", "cancelled", "cancelled", "cancelled"]
    assert store.get(lease.id).cancel_requested
    store.release(lease)
    harness.follow()
    assert (store.flows.get(flow).status, store.flows.cancel(flow).status) == ("cancelled", "cancelled")
    with pytest.raises(InvalidState):
        store.flows.replay(flow)
    again = store.flows.replay(flow, failed_only=False)
    assert work(store, harness, 1, 2, 3, 4) == [0, 1, 1, [2, 3]]
    assert (store.flows.get(again).status, store.flows.get(flow).status) == ("done", "cancelled")


def test_a_running_member_adds_others_once(store: Store, harness: Harness) -> None:
    flow = store.flows.publish([member("split"), member(None, 0, queue="sums")])
    (lease,) = store.claim("jobs")
    added = store.flows.add(lease, [member(n, lease.id, into=None) for n in range(3)])
    assert store.flows.add(lease, [member(9, lease.id, into=None)]) == added
    tail = store.flows.add(lease, [member(None, added[0], queue="tails")], n=2, joins=False)
    harness.follow()
    assert counts(store, "jobs") == {"leased": 1, "held": 3}
    store.release(lease)
    with pytest.raises(LeaseLost):
        store.flows.add(lease, [member(5)], n=3)
    assert work(store, harness, "mine", "a", "b", "c") == ["split", 0, 1, 2]
    assert work(store, harness, "end", queue="tails") == ["a"]
    assert work(store, harness, "sum", queue="sums") == [["mine", "a", "b", "c"]]
    found = store.flows.get(flow, limit=10)
    assert (found.status, found.total) == ("done", 6)
    assert {one.id for one in found.members} >= {*added, *tail}
    assert len(store.trace(flow)) == 6


def test_members_that_are_added_while_their_flow_is_cancelled_are_cancelled(store: Store, harness: Harness) -> None:
    flow = store.flows.publish([member("split")])
    (lease,) = store.claim("jobs")
    core = inside(store)

    def cancelling(step: Any) -> Any:
        if isinstance(step, Together):
            store.flows.cancel(flow)
        return core.do(step)

    more = [member("now"), member("later", lease.id, into=None)]
    added = core.drive(FlowVerbs(core, store.tenant).add_to_flow(lease, more), cancelling)
    assert [store.get(id).state for id in added] == ["cancelled", "cancelled"]
    assert store.flows.add(lease, more) == added
    store.release(lease)
    harness.follow()
    assert store.flows.get(flow).counts == {"cancelled": 3}


def test_added_members_cannot_wait_for_those_that_wait_for_them(store: Store, harness: Harness) -> None:
    flow = store.flows.publish([
        member("a"), member("b", queue="others"), member("direct", 0), member("indirect", 2), member("of b", 1),
        member("c"),
    ])  # fmt: skip
    _, _, direct, indirect, of_b, c = members_of(store, flow)
    (lease,), (other,) = store.claim("jobs"), store.claim("others")
    (tail,) = store.flows.add(lease, [member("tail", indirect, into=None)], joins=False)
    mine = store.flows.add(lease, [member("mine", lease.id, into=None), member("not mine", c, into=None)], n=2)
    store.flows.add(lease, [member("again", *mine, into=None)], n=3)
    store.flows.add(other, [member("joins", direct, into=None)])
    for n, one in enumerate([direct, indirect, tail, of_b], 4):
        with pytest.raises(tampu.InvalidMessage, match="joins=False"):
            store.flows.add(lease, [member("circle", one)], n=n)
        store.flows.add(lease, [member("later", one, into=None)], n=n, joins=False)
    store.settle([tampu.Ack(other), tampu.Ack(lease)])
    harness.follow()
    while leases := store.claim("jobs", limit=10):
        store.settle([tampu.Ack(one) for one in leases])
        harness.follow()
    found = store.flows.get(flow)
    assert (found.status, found.counts) == ("done", {"done": 15})


def test_an_id_that_members_of_another_flow_have_is_refused(store: Store, harness: Harness) -> None:
    flow = store.flows.publish([member(0)])
    (lease,) = store.claim("jobs")
    added = store.flows.add(lease, [member(1), member(2)])
    with pytest.raises(tampu.InvalidMessage, match="another flow"):
        store.flows.publish([member(3)], id=f"{added[0][:-1]}0")
    assert members_of(store, flow) == [lease.id, *added]


def test_a_death_between_deciding_and_doing_is_made_up_for(
    store: Store, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = store.flows.publish([member(0), member(1), member(None, 0, 1)])
    store.settle([tampu.Ack(lease, "done") for lease in store.claim("jobs", limit=2)])
    with monkeypatch.context() as patch:
        patch.setattr(FlowFollower, "act", lambda *_: 1 / 0)
        for _ in range(2):
            Follower(inside(store)).turn()
    assert states(store, flow) == ["done", "done", "held"]
    harness.follow()
    follower: Any = FlowFollower()
    follower.act(inside(store), store.tenant, members_of(store, flow))
    assert frees(store, members_of(store, flow)) == [0, 0, 1]
    assert work(store, harness, None) == [["done", "done"]]


@pytest.mark.parametrize("then", ["ready", "cancelled", "dead"])
def test_what_a_server_did_not_answer_is_done_again(
    store: Store, harness: Harness, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = member(["no", "field"], 0, into="x" if then == "dead" else None, on_failure="skip")
    flow = store.flows.publish([member(0), waiting])
    store.settle([tampu.Reject(lease) if then == "cancelled" else tampu.Ack(lease) for lease in store.claim("jobs")])
    last, core = members_of(store, flow)[1], harness.core()
    do = core.do

    def failing(step: Any) -> Any:
        if isinstance(step, Cancel | Free):
            return [Outcome(id, None, Unavailable("this server of several is down")) for id in step.ids]
        return do(step)

    with monkeypatch.context() as patch:
        patch.setattr(core, "do", failing)
        with pytest.raises(Unavailable):
            Follower(core).turn()
    assert store.get(last).state == "held"
    harness.follow()
    assert store.get(last).state == then


def test_a_held_member_that_waits_for_something_else_is_left_alone(store: Store, harness: Harness) -> None:
    flow = store.flows.publish([member(0), member("second", 0, into=None)])
    work(store, harness, None)
    (lease,) = store.claim("jobs")
    store.reviews.ask(lease, {"options": [{"name": "go", "outcome": "approve"}]})
    follower: Any = FlowFollower()
    follower.act(inside(store), store.tenant, [lease.id])
    assert store.get(lease.id).state == "held"
    assert states(store, flow) == ["done", "held"]


def test_results_that_do_not_fit_end_the_member(store: Store, harness: Harness) -> None:
    store.queues.put("small", max_payload=20)
    flow = store.flows.publish([member(0), member(None, 0, queue="small"), member(["no", "field"], 0, into="x")])
    work(store, harness, "x" * 100)
    ended = [store.get(id) for id in members_of(store, flow)[1:]]
    assert [(one.state, one.reason) for one in ended] == [("dead", "oversize"), ("dead", "decode_failed")]
    assert "max_payload" in str(ended[0].last_error)
    harness.follow()
    assert store.flows.get(flow).status == "failed"


def test_a_result_that_cannot_be_decoded_ends_only_who_waits_for_it(store: Store, harness: Harness) -> None:
    flows = [store.flows.publish([member(n), member(None, 0)]) for n in range(2)]
    bad, good = store.claim("jobs", limit=2)
    item = SettleItem("ack", "jobs", bad.receipt, b"\x81\x80\x01", 60_000_000)
    inside(store).engine.run([Settle(store.tenant, [item])])
    store.ack(good, "fine")
    harness.follow()
    ended, ready = (store.get(members_of(store, flow)[1]) for flow in flows)
    assert (ended.state, ended.reason) == ("dead", "decode_failed")
    assert (ready.state, ready.payload) == ("ready", "fine")


@pytest.mark.parametrize(
    ("error", "then"),
    [(LookupError("gone"), "dead"), (tampu.InvalidMessage("no"), "dead"), (ZeroDivisionError(), "held")],
)
def test_a_member_that_cannot_be_freed_stops_no_other(
    store: Store, harness: Harness, error: Exception, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows = [store.flows.publish([member(n), member(None, 0)]) for n in range(2)]
    bad, good = (members_of(store, flow)[1] for flow in flows)
    body_of: Any = results.body_of

    def failing(engine: Any, settings_of: Any, message: Any, *others: Any, **more: Any) -> Any:
        if message.id == bad:
            raise error
        return body_of(engine, settings_of, message, *others, **more)

    monkeypatch.setattr(results, "body_of", failing)
    store.settle([tampu.Ack(lease) for lease in store.claim("jobs", limit=2)])
    harness.follow()
    assert (store.get(bad).state, store.get(good).state) == (then, "ready")


def test_a_result_that_was_removed_is_not_taken_for_none(store: Store, harness: Harness) -> None:
    store.queues.put("slow", retention=WEEK, result_ttl=WEEK)
    flow = store.flows.publish([member(0), member(1, queue="slow"), member(None, 0, 1)])
    work(store, harness, "gone soon")
    harness.clock.advance(2 * 86_400)
    harness.trim()
    work(store, harness, "late", queue="slow")
    last = store.get(members_of(store, flow)[-1])
    assert (last.state, last.reason) == ("dead", "parent_result_gone")


def test_schemas_see_the_payload_when_it_is_complete(store: Store, harness: Harness) -> None:
    schema = {"type": "object", "required": ["image"], "properties": {"image": {"type": "string"}}}
    store.schemas.put("image", schema, queues=["images"])
    for result, state in (("a.png", "ready"), (7, "dead")):
        flow = store.flows.publish([member(0), member({}, 0, queue="images", into="image")])
        work(store, harness, result)
        found = store.get(members_of(store, flow)[1])
        assert found.state == state
        assert state == "ready" or found.reason == "schema_invalid"
    with pytest.raises(tampu.InvalidMessage):
        store.publish("images", {}, hold="results of parents")


def test_what_is_no_flow_is_refused(store: Store, refused: Refusals) -> None:
    store.publish("jobs", 1)
    (lease,) = store.claim("jobs")
    publish = store.flows.publish
    for bad, field in (
        ([], "members"),
        ("text", "members"),
        ([member(0), member(1, 1)], "members[1].after"),
        ([member(0), member(1, -1)], "members[1].after"),
        ([member(0), member(1, 0, 0)], "members[1].after"),
        ([member(0), member(1, "no id")], None),
        ([member(0), member(1, 0, on_failure="hope")], "members[1].on_failure"),
        ([member(0, into="x")], "members[0].into"),
        ([FlowMember(queue="jobs", message=NewMessage(0, key="k"))], "members[0].key"),
        ([FlowMember(queue="jobs", message=NewMessage(0, hold="me"))], "members[0].hold"),
        ([FlowMember(queue="jobs", message=NewMessage(0), after=5)], "members[0].after"),  # type: ignore[arg-type]  # refused
        ([FlowMember(queue="_tampu.timers", message=NewMessage(0))], None),
    ):
        refused(store, "invalid_message", lambda bad=bad: publish(bad), field)
    refused(store, "invalid_message", lambda: publish([member(0)], id="11111111-1111-4111-8111-111111111111"))
    refused(store, "not_found", lambda: store.flows.get("fe5e0fc4-eaa0-8f10-bc5a-700000000000"))
    refused(store, "not_found", lambda: store.flows.cancel("fe5e0fc4-eaa0-8f10-bc5a-700000000000"))
    refused(store, "invalid_state", lambda: store.flows.add(lease, [member(0)]))


def test_a_full_queue_takes_nothing_of_a_flow(store: Store) -> None:
    store.queues.put("small", max_depth=1)
    with pytest.raises(tampu.QueueFull):
        store.flows.publish([member(0), member(1, queue="small"), member(2, 0, queue="small")])
    assert store.flows.list().flows == []
    assert "jobs" not in store.queues.list() or counts(store, "jobs") == {}


def test_flows_are_listed_by_page_name_and_status(store: Store, harness: Harness) -> None:
    made = []
    for n in range(5):
        harness.clock.advance(1)
        made.append(store.flows.publish([member(n)], name=f"flow-{n % 2}"))
    work(store, harness, 0)
    page = store.flows.list(limit=2)
    assert [one.id for one in page.flows] == made[:2:-1]
    rest = store.flows.list(limit=10, after=page.cursor)
    assert ([one.id for one in rest.flows], rest.cursor) == (made[2::-1], None)
    assert [one.id for one in store.flows.list(name="flow-1").flows] == [made[3], made[1]]
    assert [one.id for one in store.flows.list(status="done").flows] == made[:1]


def test_what_is_stored_of_a_flow_goes_a_week_after_its_end(store: Store, harness: Harness) -> None:
    done = store.flows.publish([member(0), member(1, 0)])
    failed = store.flows.publish([member(0), member(1, 0)])
    work(store, harness, 1, ValueError(), 2)
    for days, left in ((6, [failed, done]), (2, [failed])):
        harness.clock.advance(days * 86_400)
        harness.sweep()
        harness.ring()
        assert [one.id for one in store.flows.list().flows] == sorted(left)
    with pytest.raises(NotFound):
        store.flows.get(done)
    engine = inside(store).engine
    assert len(engine.documents("flow_part", "default")) == 1
    assert len(engine.documents("flow_state", "default")) == 1


def test_tenants_do_not_see_flows_of_others(harness: Harness) -> None:
    ours, theirs = harness.open(tenant="ours"), harness.open(tenant="theirs")
    flow = ours.flows.publish([member(0), member(1, 0)])
    with pytest.raises(NotFound):
        theirs.flows.get(flow)
    with pytest.raises(NotFound):
        theirs.flows.cancel(flow)
    theirs.publish("jobs", "same id", id=members_of(ours, flow)[0])
    work(theirs, harness, None)
    assert (theirs.flows.list().flows, states(ours, flow)) == ([], ["ready", "held"])


def test_an_ack_of_a_member_wakes_the_follower_in_another_process(
    direct_harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = direct_harness.open(live=True), direct_harness.open(live=True)
    heard = threading.Event()
    monkeypatch.setattr(access.core(other), "on_change", heard.set)
    engine = access.engine(store)

    def ring() -> bool:
        engine.wake_others()
        if direct_harness.name == "mariadb":  # where processes poll for changes
            store.publish("others", 1)
        return heard.wait(0.05)

    until(ring)
    woken: list[int] = []
    monkeypatch.setattr(engine, "wake_others", lambda: woken.append(1))
    store.publish("plain", 1)
    store.ack(store.claim("plain")[0])
    assert not woken
    store.flows.publish([member(0), member(1, 0, into=None), member(2, 0, into=None)])
    store.ack(store.claim("jobs")[0])
    assert len(woken) == 1
    while Follower(access.core(store)).turn() != 0:
        pass
    with store.atomic() as unit:
        unit.ack(store.claim("jobs")[0])
    assert len(woken) == 2


def test_random_flows_end_as_the_reference_says(store: Store, harness: Harness, seed: int) -> None:
    model = FlowModel(random.Random(seed))
    flow = store.flows.publish(model.members())
    ids = members_of(store, flow)
    for _ in range(60):
        harness.follow()
        assert model.states() == states(store, flow)
        assert store.flows.get(flow).status == model.status()
        ready = [id for id, state in zip(ids, model.states(), strict=True) if state == "ready"]
        if not ready and not model.dead():
            break
        model.step(store, ids)
    else:
        pytest.fail("the flow does not end")
    assert verbs(store, *ids).count("free") == model.freed
