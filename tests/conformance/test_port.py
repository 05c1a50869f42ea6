"""The engine port itself: documents, and many calls in one commit, each with its own answer."""

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
from tests.conformance.harness import Harness, counts, inside

SETTINGS = resolve(BUILT_IN)


@pytest.fixture
def engine(store: Store) -> Any:
    return inside(store).engine


def _publish(*payloads: object, queue: str = "jobs", tenant: str = "default", **fields: Any) -> port.Publish:
    items = [validate.item(queue, SETTINGS, NewMessage(p, **fields)) for p in payloads]
    return port.Publish(tenant, queue, items)


def test_calls_of_one_commit_each_get_their_own_reply(engine: Any, store: Store) -> None:
    replies = engine.run(
        [
            _publish(1, 2),
            port.PutDocument("note", "default", "n", b"1", version=7),
            port.Settle("default", [port.SettleItem("ack", "jobs", "jobs/1.1")]),
            _publish(3, queue="other"),
            port.Purge("default", "nowhere", State.DEAD, 10),
            port.Cancel("default", ["019b76da-a800-7000-8000-000000000001"]),
        ]
    )
    assert [m.payload for m in replies[0]] == [1, 2]
    assert isinstance(replies[1], tampu.VersionConflict)
    assert isinstance(replies[2][0].error, tampu.LeaseLost)
    assert [m.payload for m in replies[3]] == [3]
    assert isinstance(replies[4], tampu.NotFound)
    assert isinstance(replies[5][0].error, tampu.NotFound)
    assert (counts(store, "jobs"), counts(store, "other")) == ({"ready": 2}, {"ready": 1})


def test_a_refused_publish_does_not_affect_others_of_its_commit(engine: Any, store: Store) -> None:
    engine.run([_publish("first", idempotency_key="i")])
    full = port.Publish("default", "jobs", _publish(1, 2, 3).items, max_depth=2)
    replies = engine.run(
        [
            _publish("a"),
            _publish("another body", idempotency_key="i"),
            _publish("b", key="k"),
            full,
            _publish("c"),
            port.Publish("default", "fresh", _publish("new queue", "refused").items, max_depth=1),
        ]
    )
    kinds = [type(reply) for reply in replies]
    assert kinds == [
        list, tampu.IdempotencyConflict, list, tampu.QueueFull, list, tampu.QueueFull,
    ]  # fmt: skip
    assert sorted(m.payload for m in store.messages("jobs")) == ["a", "b", "c", "first"]
    assert store.queues.list() == ["jobs"]
    assert [t.verb for t in store.journal().transitions] == ["publish"] * 4


def test_two_publishers_of_one_commit_do_not_overfill_a_queue(engine: Any, store: Store) -> None:
    limited = [port.Publish("default", "jobs", _publish(n, n).items, max_depth=3) for n in range(3)]
    replies = engine.run(limited)
    assert [isinstance(reply, list) for reply in replies].count(True) == 1
    assert counts(store, "jobs") == {"ready": 2}


def test_two_claims_of_one_commit_share_nothing(engine: Any) -> None:
    engine.run([_publish(*range(10))])
    want = [port.QueueClaim("jobs", 30_000_000)]
    one, two = engine.run([port.Claim("default", want, 6, "w1"), port.Claim("default", want, 6, "w2")])
    assert len({lease.id for lease in (*one, *two)}) == len(one) + len(two) == 10


def test_two_claims_of_one_commit_keep_max_in_flight(engine: Any) -> None:
    engine.run([_publish(*range(10))])
    want = [port.QueueClaim("jobs", 30_000_000, max_in_flight=5)]
    replies = engine.run([port.Claim("default", want, 4) for _ in range(3)])
    assert sum(map(len, replies)) == 5


def test_two_settlements_of_one_lease_in_one_commit_count_once(engine: Any, store: Store) -> None:
    engine.run([_publish(1)])
    ((lease,),) = engine.run([port.Claim("default", [port.QueueClaim("jobs", 30_000_000)], 1)])
    ack = port.SettleItem("ack", "jobs", lease.receipt)
    nack = port.SettleItem("nack", "jobs", lease.receipt)
    one, two, three = engine.run([port.Settle("default", [item]) for item in (ack, nack, ack)])
    outcomes = [one[0], two[0], three[0]]
    assert [o.ok for o in outcomes].count(True) in (1, 2)
    assert store.get(lease.id).state in (State.DONE, State.DELAYED, State.READY)
    assert len(store.journal().transitions) == 3


def test_documents_are_kept_by_kind_tenant_and_name(engine: Any, harness: Harness) -> None:
    for kind, tenant, name in [("a", "t", "x"), ("a", "t", "w"), ("a", "u", "x"), ("b", "t", "x")]:
        engine.run([port.PutDocument(kind, tenant, name, f"{kind}{tenant}{name}".encode())])
    found = engine.document("a", "t", "x")
    assert found is not None
    assert (found.kind, found.tenant, found.name, found.value) == ("a", "t", "x", b"atx")
    assert [(d.name, d.value) for d in engine.documents("a", "t")] == [("w", b"atw"), ("x", b"atx")]
    assert engine.document("a", "t", "none") is None
    kept = inside(harness.reopen()).engine.document("b", "t", "x")
    assert kept is not None
    assert kept.value == b"btx"


def test_documents_are_versioned(engine: Any) -> None:
    (first,) = engine.run([port.PutDocument("k", "t", "n", b"1", version=0)])
    (refused,) = engine.run([port.PutDocument("k", "t", "n", b"2", version=0)])
    assert isinstance(refused, tampu.VersionConflict)
    (second,) = engine.run([port.PutDocument("k", "t", "n", b"2", version=first)])
    assert second > first
    (third,) = engine.run([port.PutDocument("k", "t", "n", b"3")])
    assert third > second
    assert engine.document("k", "t", "n") == port.Document("k", "t", "n", third, b"3")


def test_a_deleted_document_is_gone_and_its_versions_do_not_come_back(engine: Any) -> None:
    (first,) = engine.run([port.PutDocument("k", "t", "n", b"1")])
    assert engine.run([port.DeleteDocument("k", "t", "n")]) == [True]
    assert engine.run([port.DeleteDocument("k", "t", "n")]) == [False]
    assert engine.document("k", "t", "n") is None
    (again,) = engine.run([port.PutDocument("k", "t", "n", b"2", version=0)])
    assert again != first
    (refused,) = engine.run([port.DeleteDocument("k", "t", "n", version=first)])
    assert isinstance(refused, tampu.VersionConflict)
    both = port.Together(
        "t", [port.PutDocument("k", "t", "m", b"1"), port.DeleteDocument("k", "t", "n", version=first)]
    )
    (refused,) = engine.run([both])
    assert isinstance(refused, tampu.VersionConflict)
    assert engine.document("k", "t", "m") is None, "all or nothing"
    assert engine.run([port.DeleteDocument("k", "t", "n", version=again)]) == [True]
    assert engine.document("k", "t", "n") is None


def test_the_revision_changes_with_every_change_of_a_document(engine: Any) -> None:
    seen = [engine.revision()]
    for call in (port.PutDocument("k", "t", "n", b"1"), port.PutDocument("k", "t", "n", b"1"),
                 port.DeleteDocument("k", "t", "n")):  # fmt: skip
        engine.run([call])
        seen.append(engine.revision())
    assert len(set(seen)) == 4
    engine.run([_publish(1), port.DeleteDocument("k", "t", "n")])
    assert engine.revision() == seen[-1]


def test_next_due_is_the_earliest_of_delay_lease_and_expiry(engine: Any, store: Store, harness: Harness) -> None:
    now = harness.clock.now()
    assert engine.next_due() is None
    store.publish("jobs", 1, delay=30)
    assert engine.next_due() == now + 30_000_000
    store.publish("jobs", 2, ttl=20)
    assert engine.next_due() == now + 20_000_000
    store.publish("other", 3)
    lease = store.claim("other", lease=10)[0]
    assert engine.next_due() == now + 10_000_000
    store.ack(lease)
    harness.clock.advance(30)
    harness.sweep()
    assert engine.next_due() is None


def test_poll_status_has_the_time_what_is_due_what_is_ready_and_what_changed(
    engine: Any, store: Store, harness: Harness
) -> None:
    queues = [("default", "jobs"), ("default", "none"), ("other", "jobs")]
    status = engine.poll_status(queues)
    assert (status.now_us, status.due_us, status.revision) == (harness.clock.now(), None, engine.revision())
    assert status.ready == dict.fromkeys(queues, 0)
    store.publish_many("jobs", [1, 2, 3])
    store.publish("new", 1, delay=30)
    store.publish("other", 2)
    engine.run([port.PutDocument("k", "t", "n", b"1")])
    harness.clock.advance(1)
    status = engine.poll_status(queues)
    assert status.due_us == engine.next_due() == status.now_us + 29_000_000
    assert status.revision == engine.revision()
    assert status.ready == {queues[0]: 3, queues[1]: 0, queues[2]: 0}
    assert engine.poll_status([]).ready == {}


def test_poll_status_says_whether_this_process_may_lead(engine: Any, harness: Harness) -> None:
    assert engine.poll_status([]).free
    assert engine.lead()
    assert engine.poll_status([]).free, "it is ours"


def test_listeners_get_what_became_ready_and_what_is_due(engine: Any, store: Store, harness: Harness) -> None:
    heard: list[object] = []

    class Ear:
        def ready(self, queues: Any) -> None:
            heard.append(("ready", dict(queues)))

        def due(self, at_us: int) -> None:
            heard.append(("due", at_us))

        def leases_expired(self, queues: Any) -> None:
            heard.append(("lapsed", dict(queues)))

        def on_remote_change(self) -> bool:
            return False

    engine.listen(Ear())
    store.publish_many("jobs", range(3))
    store.publish("jobs", 1, delay=9)
    assert heard == [("ready", {("default", "jobs"): 3}), ("due", harness.clock.now() + 9_000_000)]


def test_listeners_get_expired_leases(engine: Any, store: Store, harness: Harness) -> None:
    heard: list[object] = []

    class Ear:
        def ready(self, queues: Any) -> None: ...

        def due(self, at_us: int) -> None: ...

        def leases_expired(self, queues: Any) -> None:
            heard.append(dict(queues))

        def on_remote_change(self) -> bool:
            return False

    store.publish_many("jobs", range(3))
    store.publish("jobs", "once", max_attempts=1)
    assert len(store.claim("jobs", limit=10, lease=5)) == 4
    engine.listen(Ear())
    harness.clock.advance(6)
    assert len(store.claim("jobs", limit=10, lease=5)) == 3, "a claim looks first"
    harness.clock.advance(6)
    harness.sweep()
    store.publish("jobs", 1)
    assert heard == [{("default", "jobs"): (3, 1)}, {("default", "jobs"): (3, 0)}]


def test_a_store_says_the_version_of_its_schema(engine: Any) -> None:
    assert engine.schema >= 1


def test_the_time_is_the_engines_clock(engine: Any, harness: Harness) -> None:
    assert engine.now() == harness.clock.now()
    harness.clock.advance(5)
    assert engine.now() == harness.clock.now()


def test_a_healthy_store_finds_nothing_bad(store: Store) -> None:
    store.publish_many("jobs", range(5))
    store.ack(store.claim("jobs")[0])
    assert [finding for finding in store.check() if finding[1] == "bad"] == []


def test_a_broken_call_fails_alone(engine: Any, store: Store) -> None:
    """A fault of ours in one call must not take along the callers who came with it."""
    good = _publish("a")
    broken = msgspec.structs.replace(good, items=[msgspec.structs.replace(good.items[0], delay_us="soon")])
    one, failed, two = engine.run([good, broken, _publish("b")])
    assert [m.payload for m in (*one, *two)] == ["a", "b"]
    assert isinstance(failed, tampu.TampuError)
    assert sorted(m.payload for m in store.messages("jobs")) == ["a", "b"]
    assert [t.verb for t in store.journal().transitions] == ["publish", "publish"]


def test_documents_are_found_by_the_beginning_of_their_names(engine: Any) -> None:
    names = ["a", "a/", "a/1", "a/10", "a/2", "a/é", "a/\U0001f600", "a0", "A/1", "b/1", "a.b/1", "a%b", "ab", "a_b"]
    engine.run([port.PutDocument("range", "default", name, name.encode()) for name in names])
    engine.run(
        [port.PutDocument(kind, tenant, "a/other", b"") for kind, tenant in (("range", "t2"), ("rang", "default"))]
    )

    def found(prefix: str, after: str = "", limit: int | None = None) -> list[str]:
        documents = engine.documents("range", "default", prefix, after, limit)
        assert [document.value.decode() for document in documents] == [document.name for document in documents]
        return [document.name for document in documents]

    assert found("") == sorted(names)
    for prefix in ("a", "a/", "a/1", "a%", "a_", "A", "nothing"):
        there = sorted(name for name in names if name.startswith(prefix))
        assert found(prefix) == there
        assert found(prefix, limit=2) == there[:2]
        if there:
            assert found(prefix, there[0], 2) == there[1:3]
            assert found(prefix, there[-1]) == []
    assert found("", limit=3) == sorted(names)[:3]
    assert (engine.count_documents("range", "default"), engine.count_documents("range", "nobody")) == (len(names), 0)


def test_messages_are_removed_by_id_in_any_state_but_leased(engine: Any, store: Store, harness: Harness) -> None:
    store.queues.put("jobs", group_order=True, max_attempts=1, retention=60)
    own = "019b76da-a800-4000-8000-00000000000a"
    leased, done, dead = store.publish_many("jobs", ["leased", "done", "dead"])
    claimed = store.claim("jobs", limit=3)
    store.ack(claimed[1], result={"secret": 1})
    store.nack(claimed[2], "secret")
    first, second = store.publish_many("jobs", [tampu.NewMessage(n, group="g", key=f"k{n}") for n in range(2)])
    delayed = store.publish("jobs", 1, delay=60, id=own)
    held = store.publish("jobs", 1, hold="x")
    cancelled = store.publish("jobs", 1)
    store.cancel(cancelled.id)
    kept = store.publish("jobs", "kept")
    ids = [m.id for m in (leased, done, dead, first, delayed, held, cancelled)]
    nowhere = "019b76da-a800-7000-8000-000000000001"
    (outcomes,) = engine.run([port.Remove("default", [*ids, nowhere], "ann")])
    assert [outcome.state for outcome in outcomes[1:7]] == ["done", "dead", "ready", "delayed", "held", "cancelled"]
    assert isinstance(outcomes[0].error, tampu.InvalidState)
    assert isinstance(outcomes[7].error, tampu.NotFound)
    assert [engine.get("default", id) for id in ids[1:]] == [None] * 6
    assert counts(store, "jobs") == {"leased": 1, "ready": 2}
    assert {m.id for m in store.messages("jobs")} == {leased.id, second.id, kept.id}
    assert {lease.id for lease in store.claim("jobs", limit=9)} == {second.id, kept.id}, (
        "the next of the group is ready"
    )
    purged = [(t.id, t.worker) for t in store.journal().transitions if t.verb == "purge"]
    assert sorted(purged) == sorted((id, "ann") for id in ids[1:])
    assert engine.run([port.Remove("other", [kept.id])])[0][0].ok is False, "not of another tenant"
    again = store.publish("jobs", 2, id=own, key="k0")
    assert not again.duplicate
    store.ack(claimed[0])
    harness.clock.advance(120)
    harness.trim()
    assert "done" not in counts(store, "jobs")
    assert not [finding for finding in store.check() if finding[1] == "bad"]
