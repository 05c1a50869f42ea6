"""The engine port itself: documents, and many calls in one commit, each with its own answer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import tampu
from tampu.broker import incoming
from tampu.broker.queue import Queue
from tampu.broker.settings import resolve
from tampu.engines import port
from tampu.model.config import BUILT_IN
from tampu.model.message import NewMessage, State
from tests.conformance.house import House, counts, inside

SETTINGS = resolve(BUILT_IN)


@pytest.fixture
def engine(q: Queue) -> Any:
    return inside(q).engine


def _publish(*payloads: object, queue: str = "jobs", tenant: str = "default", **fields: Any) -> port.Publish:
    items = [incoming.item(queue, SETTINGS, NewMessage(p, **fields)) for p in payloads]
    return port.Publish(tenant, queue, items)


def test_calls_of_one_commit_each_get_their_own_reply(engine: Any, q: Queue) -> None:
    replies = engine.run(
        [
            _publish(1, 2),
            port.PutDocument("note", "default", "n", b"1", version=7),
            port.Settle("default", [port.Ending("ack", "jobs", "jobs/1.1")]),
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
    assert (counts(q, "jobs"), counts(q, "other")) == ({"ready": 2}, {"ready": 1})


def test_a_refused_publish_does_not_spoil_its_neighbours(engine: Any, q: Queue) -> None:
    engine.run([_publish("first", idempotency_key="i")])
    full = port.Publish("default", "jobs", _publish(1, 2, 3).items, max_depth=2)
    replies = engine.run(
        [
            _publish("a"),
            _publish("another body", idempotency_key="i"),
            _publish("b", key="k"),
            full,
            _publish("c"),
            _publish("new queue, refused", "i2", queue="fresh", idempotency_key="i"),
        ]
    )
    kinds = [type(reply) for reply in replies]
    assert kinds == [
        list, tampu.IdempotencyConflict, list, tampu.QueueFull, list, tampu.IdempotencyConflict,
    ]  # fmt: skip
    assert sorted(m.payload for m in q.messages("jobs")) == ["a", "b", "c", "first"]
    assert q.queues.list() == ["jobs"]
    assert [t.verb for t in q.journal().transitions] == ["publish"] * 4


def test_two_publishers_of_one_commit_do_not_overfill_a_queue(engine: Any, q: Queue) -> None:
    limited = [port.Publish("default", "jobs", _publish(n, n).items, max_depth=3) for n in range(3)]
    replies = engine.run(limited)
    assert [isinstance(reply, list) for reply in replies].count(True) == 1
    assert counts(q, "jobs") == {"ready": 2}


def test_two_claims_of_one_commit_share_nothing(engine: Any) -> None:
    engine.run([_publish(*range(10))])
    want = [port.Want("jobs", 30_000_000)]
    one, two = engine.run([port.Claim("default", want, 6, "w1"), port.Claim("default", want, 6, "w2")])
    assert len({lease.id for lease in (*one, *two)}) == len(one) + len(two) == 10


def test_two_claims_of_one_commit_keep_max_in_flight(engine: Any) -> None:
    engine.run([_publish(*range(10))])
    want = [port.Want("jobs", 30_000_000, max_in_flight=5)]
    replies = engine.run([port.Claim("default", want, 4) for _ in range(3)])
    assert sum(map(len, replies)) == 5


def test_two_settlements_of_one_lease_in_one_commit_count_once(engine: Any, q: Queue) -> None:
    engine.run([_publish(1)])
    ((lease,),) = engine.run([port.Claim("default", [port.Want("jobs", 30_000_000)], 1)])
    ack = port.Ending("ack", "jobs", lease.receipt)
    nack = port.Ending("nack", "jobs", lease.receipt)
    one, two, three = engine.run([port.Settle("default", [item]) for item in (ack, nack, ack)])
    outcomes = [one[0], two[0], three[0]]
    assert [o.ok for o in outcomes].count(True) in (1, 2)
    assert q.get(lease.id).state in (State.DONE, State.DELAYED, State.READY)
    assert len(q.journal().transitions) == 3


def test_documents_are_kept_by_kind_tenant_and_name(engine: Any, house: House) -> None:
    for kind, tenant, name in [("a", "t", "x"), ("a", "t", "w"), ("a", "u", "x"), ("b", "t", "x")]:
        engine.run([port.PutDocument(kind, tenant, name, f"{kind}{tenant}{name}".encode())])
    found = engine.document("a", "t", "x")
    assert found is not None
    assert (found.kind, found.tenant, found.name, found.value) == ("a", "t", "x", b"atx")
    assert [(d.name, d.value) for d in engine.documents("a", "t")] == [("w", b"atw"), ("x", b"atx")]
    assert engine.document("a", "t", "none") is None
    kept = inside(house.reopen()).engine.document("b", "t", "x")
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


def test_the_revision_changes_with_every_change_of_a_document(engine: Any) -> None:
    seen = [engine.revision()]
    for call in (port.PutDocument("k", "t", "n", b"1"), port.PutDocument("k", "t", "n", b"1"),
                 port.DeleteDocument("k", "t", "n")):  # fmt: skip
        engine.run([call])
        seen.append(engine.revision())
    assert len(set(seen)) == 4
    engine.run([_publish(1), port.DeleteDocument("k", "t", "n")])
    assert engine.revision() == seen[-1]


def test_next_due_is_the_earliest_of_delay_lease_and_expiry(engine: Any, q: Queue, house: House) -> None:
    now = house.clock.now()
    assert engine.next_due() is None
    q.publish("jobs", 1, delay=30)
    assert engine.next_due() == now + 30_000_000
    q.publish("jobs", 2, ttl=20)
    assert engine.next_due() == now + 20_000_000
    q.publish("other", 3)
    lease = q.claim("other", lease=10)[0]
    assert engine.next_due() == now + 10_000_000
    q.ack(lease)
    house.clock.advance(30)
    house.sweep()
    assert engine.next_due() is None


def test_a_glance_tells_the_time_what_is_due_what_is_ready_and_what_changed(
    engine: Any, q: Queue, house: House
) -> None:
    queues = [("default", "jobs"), ("default", "none"), ("other", "jobs")]
    told = engine.glance(queues)
    assert (told.now_us, told.due_us, told.revision) == (house.clock.now(), None, engine.revision())
    assert told.ready == dict.fromkeys(queues, 0)
    q.publish_many("jobs", [1, 2, 3])
    q.publish("new", 1, delay=30)
    q.publish("other", 2)
    engine.run([port.PutDocument("k", "t", "n", b"1")])
    house.clock.advance(1)
    told = engine.glance(queues)
    assert told.due_us == engine.next_due() == told.now_us + 29_000_000
    assert told.revision == engine.revision()
    assert told.ready == {queues[0]: 3, queues[1]: 0, queues[2]: 0}
    assert engine.glance([]).ready == {}


def test_a_glance_tells_who_may_lead(engine: Any, house: House) -> None:
    assert engine.glance([]).free
    assert engine.lead()
    assert engine.glance([]).free, "it is ours"


def test_listeners_hear_what_became_ready_and_what_is_due(engine: Any, q: Queue, house: House) -> None:
    heard: list[object] = []

    class Ear:
        def ready(self, queues: Any) -> None:
            heard.append(("ready", dict(queues)))

        def due(self, at_us: int) -> None:
            heard.append(("due", at_us))

        def lapsed(self, queues: Any) -> None:
            heard.append(("lapsed", dict(queues)))

        def stirred(self) -> bool:
            return False

    engine.listen(Ear())
    q.publish_many("jobs", range(3))
    q.publish("jobs", 1, delay=9)
    assert heard == [("ready", {("default", "jobs"): 3}), ("due", house.clock.now() + 9_000_000)]


def test_listeners_hear_of_leases_that_ran_out(engine: Any, q: Queue, house: House) -> None:
    heard: list[object] = []

    class Ear:
        def ready(self, queues: Any) -> None: ...

        def due(self, at_us: int) -> None: ...

        def lapsed(self, queues: Any) -> None:
            heard.append(dict(queues))

        def stirred(self) -> bool:
            return False

    q.publish_many("jobs", range(3))
    q.publish("jobs", "once", max_attempts=1)
    assert len(q.claim("jobs", limit=10, lease=5)) == 4
    engine.listen(Ear())
    house.clock.advance(6)
    assert len(q.claim("jobs", limit=10, lease=5)) == 3, "a claim looks first"
    house.clock.advance(6)
    house.sweep()
    q.publish("jobs", 1)
    assert heard == [{("default", "jobs"): (3, 1)}, {("default", "jobs"): (3, 0)}]


def test_a_store_says_the_version_of_its_schema(engine: Any) -> None:
    assert engine.schema >= 1


def test_the_time_is_the_engines_clock(engine: Any, house: House) -> None:
    assert engine.now() == house.clock.now()
    house.clock.advance(5)
    assert engine.now() == house.clock.now()


def test_a_healthy_store_finds_nothing_bad(q: Queue) -> None:
    q.publish_many("jobs", range(5))
    q.ack(q.claim("jobs")[0])
    assert [finding for finding in q.check() if finding[1] == "bad"] == []


def test_a_broken_call_fails_alone(engine: Any, q: Queue) -> None:
    """A fault of ours in one call must not take along the callers who came with it."""
    good = _publish("a")
    broken = msgspec.structs.replace(good, items=[msgspec.structs.replace(good.items[0], delay_us="soon")])
    one, failed, two = engine.run([good, broken, _publish("b")])
    assert [m.payload for m in (*one, *two)] == ["a", "b"]
    assert isinstance(failed, tampu.TampuError)
    assert sorted(m.payload for m in q.messages("jobs")) == ["a", "b"]
    assert [t.verb for t in q.journal().transitions] == ["publish", "publish"]
