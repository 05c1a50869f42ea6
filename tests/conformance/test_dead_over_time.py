"""Dead letters over time: retention, the undo of a replay, search and replay across queues, copies for workers."""

from __future__ import annotations

from typing import Any

import pytest

from tampu import InvalidConfig, InvalidMessage, InvalidState, NotFound, State
from tampu.broker.core import Steps
from tampu.broker.dead.jobs import LEASE_US
from tampu.broker.store import AllVerbs, Store
from tampu.engines.port import Purge, PutDocument, Replay, Together, UndoReplay
from tampu.model.times import SECOND, moment
from tests.conformance.harness import Harness, counts, verbs

DAY = 86_400


def _bury(store: Store, queue: str, payload: object = 1, error: str | None = "x", reason: str = "bad") -> str:
    store.publish(queue, payload)
    lease = store.claim(queue)[0]
    store.reject(lease, reason=reason, error=error)
    return lease.id


def test_dead_letters_are_removed_when_they_are_too_old_or_too_many_the_oldest_first(
    store: Store, harness: Harness
) -> None:
    store.queues.put("old.*", dead_retention=2 * DAY)
    store.queues.put("many", max_dead=2)
    for queue in ("old.mail", "kept"):
        _bury(store, queue)
    harness.clock.advance(DAY)
    young = _bury(store, "old.mail")
    many = [_bury(store, "many", n) for n in range(5)]
    other = harness.open(tenant="other")
    theirs = _bury(other, "old.mail")
    harness.clock.advance(DAY)
    harness.trim()
    assert [m.id for m in store.messages("old.mail", state="dead")] == [young]
    assert [m.id for m in store.messages("many", state="dead")] == many[3:]
    assert counts(store, "kept") == {"dead": 1}
    assert counts(other, "old.mail") == {"dead": 1}
    assert verbs(store, many[0])[-1] == "purge"
    store.queues.put("seen", max_dead=1, dead_letter_to="desk")
    for _ in range(3):
        _bury(store, "seen")
    harness.clock.advance(60)
    harness.trim()
    assert counts(store, "seen") == {"dead": 3}  # their follower has not read them yet
    harness.follow()
    harness.trim()
    assert (counts(store, "seen"), counts(store, "desk")) == ({"dead": 1}, {"ready": 3})
    harness.clock.advance(30 * DAY)
    harness.trim()
    assert counts(store, "old.mail") == {}
    assert other.get(theirs).state is State.DEAD


def test_the_engine_removes_dead_letters_by_time_or_id_and_takes_back_what_was_not_delivered(
    store: Store, harness: Harness
) -> None:
    submit = harness.core().coalescer.submit
    ids = []
    for n in range(6):
        ids.append(_bury(store, "emails", n))
        harness.clock.advance(1)
    own = store.publish("emails", "own", id="0192f0c0-0000-7000-8000-000000000001").id
    store.reject(store.claim("emails")[0], error="x")
    elsewhere = _bury(store, "other")
    second = store.get(ids[1]).ended_us
    assert submit(Purge("default", "emails", State.DEAD, 10, until_us=second)) == 2
    waiting = store.publish("emails", 1).id
    assert (
        submit(Purge("default", "emails", State.DEAD, 10, ids=[ids[2], ids[2], own, elsewhere, waiting, ids[0]])) == 2
    )
    assert [m.id for m in store.messages("emails", state="dead")] == ids[3:]
    store.cancel(waiting)

    store.replay("emails", ids=ids[3:])
    delivered, failed = store.claim("emails", limit=2)
    store.nack(failed, error="again", delay=0)
    undo = UndoReplay("default", [*ids[3:], waiting], ["bad"] * 4, [7] * 4, "ada")
    outcomes = submit(undo)
    assert [outcome.ok for outcome in outcomes] == [False, False, True, False]
    back = store.get(ids[5])
    assert (back.state, back.reason, back.attempts, back.last_error) == (State.DEAD, "bad", 7, "x")
    assert len(back.failures) == 1
    assert verbs(store, ids[5])[-2:] == ["replay", "reject"]
    assert [outcome.ok for outcome in submit(undo)] == [False] * 4
    assert counts(store, "emails") == {"leased": 1, "ready": 1, "dead": 1, "cancelled": 1}
    store.ack(delivered)


def test_dead_letters_of_all_queues_are_listed_and_grouped_by_filter_and_error(store: Store, harness: Harness) -> None:
    mail = [_bury(store, "shop.mail", n, f"TimeoutError: no answer within {n} s") for n in range(5)]
    harness.clock.advance(60)
    begin = moment(harness.core().engine.now())
    paid = _bury(store, "shop.paid", 1, "ValueError: 'x' is no amount\nmore", reason="invalid")
    silent = _bury(store, "logs", 1, None, reason="oversize")
    store.publish("logs", 2)
    harness.open(tenant="other").publish("shop.mail", 1)
    _bury(harness.open(tenant="other"), "shop.mail")

    def ids(**filters: object) -> list[str]:
        found, after = [], None
        while True:
            page = store.dead.list(after=after, limit=2, **filters)  # type: ignore[arg-type]  # a bag of filters
            found += [message.id for message in page]
            after = page.cursor
            if after is None:
                return found

    assert ids() == [silent, *mail, paid]
    assert ids(scope="shop") == ids(queue="shop.*") == [*mail, paid]
    assert ids(queue="shop.mail", error="within 3") == mail[3:4]
    assert ids(reason="oversize") == [silent]
    assert ids(scope="shop", since=begin) == [paid]
    assert ids(until=begin) == mail
    assert ids(queue="none") == []

    late, amount, none = store.dead.groups()
    assert (late.count, late.queues, late.reasons, late.sample) == (5, {"shop.mail": 5}, {"bad": 5}, mail[4])
    assert late.error == "TimeoutError: no answer within 4 s"
    assert late.first_at <= late.last_at < begin
    assert {amount.error, none.error} == {"ValueError: 'x' is no amount", "oversize"}
    assert ids(fingerprint=late.fingerprint) == mail
    died = [one.fingerprint for one in store.journal(limit=1000).transitions if one.id == mail[0]]
    assert died[-1] == late.fingerprint
    for bad in ({"since": "yesterday"}, {"queue": "a", "scope": "b"}, {"after": "x"}, {"colour": "red"}):
        with pytest.raises(InvalidMessage):
            store.dead.list(**bad)  # type: ignore[arg-type]  # wrong on purpose


def test_dead_letters_of_several_queues_are_replayed_at_a_rate_and_taken_back(store: Store, harness: Harness) -> None:
    ids = [_bury(store, f"shop.{name}", n) for name in ("a", "b") for n in range(15)]
    _bury(store, "other")
    preview = store.dead.replay(scope="shop", rate="10/s", dry_run=True)
    assert (preview.status, preview.count, preview.queues) == ("preview", 30, {"shop.a": 15, "shop.b": 15})
    assert (preview.sample, preview.id) == (ids[:10], None)
    with pytest.raises(InvalidMessage):
        store.dead.replay()
    store.queues.put("shop.*", max_attempts=9)
    made = store.dead.replay(scope="shop", rate="10/s")
    assert (made.status, made.count, made.rate) == ("running", 0, 10)
    id = made.id or ""
    for seconds in range(2):
        for _ in range(2):
            harness.replay_dead()
        assert store.dead.get(id).count == 10 * (seconds + 1)
        harness.clock.advance(1)
    assert store.get(ids[0]).max_attempts == 9
    (first,) = store.claim("shop.a")
    store.reject(first, error="again")
    running = store.dead.get(id)
    assert (running.status, running.count, running.queues) == ("running", 20, {"shop.a": 15, "shop.b": 5})
    assert [one.id for one in store.dead.replays()] == [id]
    assert harness.open(tenant="other").dead.replays() == []

    undone = store.dead.undo(id)
    assert (undone.status, undone.undone) == ("undone", 19)
    harness.replay_dead()
    assert counts(store, "shop.a") == counts(store, "shop.b") == {"dead": 15}
    back = store.get(ids[1])
    assert (back.reason, back.last_error, back.attempts) == ("bad", "x", 1)
    with pytest.raises(InvalidState):
        store.dead.undo(id)

    made = store.dead.replay(ids[3:6])
    assert (made.status, made.count, made.queues) == ("done", 3, {"shop.a": 3})
    harness.clock.advance(61)
    with pytest.raises(InvalidState):
        store.dead.undo(made.id or "")
    everything = store.dead.replay(queue="*", limit=20)
    assert (everything.status, everything.count) == ("done", 20)
    slow = store.dead.replay(queue="*", rate="1/m")
    assert store.dead.cancel(slow.id or "").status == "cancelled"
    harness.replay_dead()
    assert sum(store.stats(name).dead for name in ("shop.a", "shop.b", "other")) == 8
    with pytest.raises(NotFound):
        store.dead.get("nobody")
    acts = [(one.action, one.target) for one in store.audit(limit=1000) if one.action.startswith("dead.")]
    assert acts == [
        ("dead.replay", "shop.*"), ("dead.undo", "shop.*"), ("dead.replay", "*"), ("dead.replay", "*"),
        ("dead.replay", "*"), ("dead.cancel", "*"),
    ]  # fmt: skip

    would = store.dead.purge(scope="shop", error="x", dry_run=True)
    gone = store.dead.purge(scope="shop", error="x")
    assert (would.status, gone.status, gone.count, gone.queues) == ("preview", "done", would.count, would.queues)
    assert store.dead.list(scope="shop", error="x").messages == []
    for _ in range(2):  # first the pages, then the replays themselves
        harness.clock.advance(2 * DAY)
        harness.replay_dead()
    assert store.dead.replays() == []


def test_workers_get_one_copy_of_each_dead_letter_and_replay_finds_the_way_back(store: Store, harness: Harness) -> None:
    before = _bury(store, "shop.mail")
    store.queues.put("shop.*", dead_letter_to="shop.desk")
    with pytest.raises(InvalidConfig):
        store.queues.put("shop.desk", dead_letter_to="shop.desk")
    first, second, gone = (_bury(store, "shop.mail", {"n": n}, f"no {n}") for n in range(3))
    early = _bury(store, "shop.mail", "early")
    store.replay("shop.mail", ids=[early])
    (lease,) = store.claim("shop.mail")
    for _ in range(2):
        harness.follow()
    copies = {lease.message.headers["tampu-dead-id"]: lease for lease in store.claim("shop.desk", limit=10)}
    assert sorted(copies) == sorted([first, second, gone])
    copy = copies[first].message
    assert (copy.payload, copy.correlation_id, copy.causation_id) == ({"n": 0}, first, first)
    assert {name: copy.headers[f"tampu-dead-{name}"] for name in ("queue", "reason", "error", "attempts")} == {
        "queue": "shop.mail", "reason": "bad", "error": "no 0", "attempts": "1",
    }  # fmt: skip

    store.ack(lease)
    store.release(copies[first])
    store.reject(copies[second], error="worker of copies")  # a copy that dies is not copied
    harness.follow()
    assert (counts(store, "shop.mail"), counts(store, "shop.desk")) == (
        {"dead": 4, "done": 1}, {"ready": 1, "leased": 1, "dead": 1},
    )  # fmt: skip

    assert store.dead.replay(copies[first].id, dry_run=True).sample == [first]
    made = store.dead.replay([copies[first].id, copies[second].id, before])
    assert (made.count, made.queues) == (3, {"shop.mail": 3})
    store.replay("shop.mail", ids=[gone])  # its copy is leased: the worker is asked to stop
    harness.follow()
    assert store.get(copies[first].id).state is State.CANCELLED
    assert store.get(copies[gone].id).cancel_requested
    store.ack(copies[gone])
    assert (counts(store, "shop.mail"), counts(store, "shop.desk")) == (
        {"ready": 4, "done": 1}, {"cancelled": 1, "done": 1, "dead": 1},
    )  # fmt: skip

    assert store.dead.undo(made.id or "").undone == 3  # they are dead again, so there are copies again
    harness.follow()
    assert counts(store, "shop.desk") == {"ready": 3, "cancelled": 1, "done": 1, "dead": 1}


class _Killed(BaseException):
    """The process ends here."""


def _die_before(harness: Harness, nth: int, steps: Steps[Any]) -> Any:
    """Carry out a verb up to its nth write. None if it has died; else its answer."""
    core, left = harness.core(), [nth]

    def do(step: Any) -> Any:
        if isinstance(step, PutDocument | Together | Replay | UndoReplay):
            if not left[0]:
                raise _Killed
            left[0] -= 1
        return core.do(step)

    try:
        return core.drive(steps, do)
    except _Killed:
        return None


def test_a_replay_whose_process_dies_between_any_two_writes_is_completed_once(store: Store, harness: Harness) -> None:
    everything = AllVerbs(harness.core(), "default")
    for nth in range(10):
        queue = f"jobs-{nth}"
        ids = [_bury(store, queue, n) for n in range(3)]
        lived = _die_before(harness, nth, everything.replay_dead(queue=queue)) is not None
        begun = [one for one in store.dead.replays() if one.queues.keys() <= {queue}][-1:] if nth else []
        harness.clock.advance(2 * LEASE_US // SECOND)
        harness.replay_dead()
        assert [store.dead.get(one.id or "").status for one in begun] == ["done"] * len(begun)
        assert counts(store, queue) == ({"ready": 3} if nth else {"dead": 3})
        assert [verbs(store, id).count("replay") for id in ids] == [min(nth, 1)] * 3
        if begun:
            assert store.dead.get(begun[0].id or "").count == 3
        if lived:
            break
    else:
        pytest.fail("a replay has fewer writes")
    for nth in range(1, 10):
        made = store.dead.replay(ids) if nth > 1 else begun[0]
        lived = _die_before(harness, nth, everything.undo_dead_replay(made.id or "")) is not None
        harness.clock.advance(2 * LEASE_US // SECOND)
        harness.replay_dead()
        assert store.dead.get(made.id or "").status == "undone"
        assert counts(store, queue) == {"dead": 3}
        if lived:
            break
    else:
        pytest.fail("an undo has fewer writes")
