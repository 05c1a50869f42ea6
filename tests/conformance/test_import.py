"""Import: messages of another store, unchanged. Here the other store is another tenant, which has its own ids."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import tampu
from tampu.broker.store import Store
from tampu.engines.port import PutDocument
from tampu.engines.transfer import Import, MessageSnapshot, Request, StartJournal
from tampu.model.message import State
from tests.conformance.harness import Harness, counts, inside, payloads

DAY = 86_400
MOVABLE = [state for state in State if state is not State.LEASED]


def kept(store: Store, queue: str = "jobs", *, state: State | None = None, limit: int = 100) -> list[MessageSnapshot]:
    """Everything of a queue, or all of one state."""
    found: list[MessageSnapshot] = []
    for one in MOVABLE if state is None else [state]:
        after: tuple[Any, ...] | None = None
        while True:
            page = inside(store).engine.export_messages(store.tenant, queue, one, after, limit)
            assert page is not None
            found += page.items
            after = page.cursor
            if after is None:
                break
    return found


def requests(store: Store, limit: int = 100) -> list[Request]:
    found: dict[str, Request] = {}
    after: tuple[Any, ...] | None = None
    while True:
        page = inside(store).engine.export_idempotency_keys(store.tenant, after, limit)
        found |= {request.key: request for request in page.items}
        after = page.cursor
        if after is None:
            return [found[key] for key in sorted(found)]


def import_(store: Store, items: list[MessageSnapshot], asked: list[Request] | None = None, queue: str = "jobs") -> Any:
    (reply,) = inside(store).engine.run([Import(store.tenant, queue, items, "the old store", asked or [])])
    return reply


@pytest.fixture
def other(harness: Harness, store: Store) -> Store:
    del store  # opened first
    return harness.open(tenant="other")


def _all_states(store: Store, harness: Harness) -> None:
    """A queue with messages of every kind in every state."""
    store.queues.put("jobs", max_attempts=2, backoff=[0])
    store.publish("jobs", "ends", labels={"a": "b"}, headers={"c": "d"}, priority=3, correlation_id="x")
    store.ack(store.claim("jobs", worker="w")[0], result={"n": 1})
    store.publish("jobs", "dies", type="t.y")
    for _ in range(2):
        store.nack(store.claim("jobs", worker="w")[0], ValueError("no"), delay=0)
    store.publish("jobs", "is rejected")
    store.reject(store.claim("jobs")[0], "bad", error="worse")
    store.publish("jobs", "fails once")
    store.nack(store.claim("jobs")[0], "not yet", delay=60)
    store.publish("jobs", "loses its lease")
    store.claim("jobs", lease=1)
    harness.clock.advance(2)
    harness.sweep()
    store.cancel(store.publish("jobs", "is cancelled").id)
    store.publish("jobs", "expires", ttl=1)
    harness.clock.advance(2)
    harness.sweep()
    store.publish("jobs", b"bytes", content_type="image/png", ttl=DAY, deadline=harness.clock.time)
    store.publish("jobs", "later", delay=DAY, key="k")
    store.publish("jobs", "held", hold="person", delay=DAY)
    store.publish("jobs", "own", id="0123abcd-0000-4000-8000-000000000001", max_attempts=9)


def test_messages_arrive_unchanged(store: Store, other: Store, harness: Harness) -> None:
    _all_states(store, harness)
    gone = kept(store)
    assert {item.state for item in gone} == set(MOVABLE)
    assert import_(other, gone) == len(gone)
    assert kept(other) == gone
    assert counts(other, "jobs") == counts(store, "jobs")
    for item in gone:
        mine, theirs = store.get(item.id), other.get(item.id)
        assert msgspec.structs.replace(theirs, tenant=store.tenant) == mine
    assert [f for f in other.check() if f[1] == "bad"] == []


def test_pages_of_any_size_give_the_same(store: Store, harness: Harness) -> None:
    _all_states(store, harness)
    store.publish_many("jobs", range(5))
    for state in MOVABLE:
        assert kept(store, state=state, limit=1) == kept(store, state=state, limit=2) == kept(store, state=state)


def test_exporting_a_queue_that_does_not_exist_gives_nothing(store: Store) -> None:
    assert inside(store).engine.export_messages(store.tenant, "none", State.READY, None, 10) is None
    assert requests(store) == []


def test_importing_again_stores_nothing(store: Store, other: Store, harness: Harness) -> None:
    _all_states(store, harness)
    gone = kept(store)
    half = len(gone) // 2
    assert import_(other, gone[:half]) == half
    assert import_(other, gone) == len(gone) - half
    with harness.unchanged(other):
        assert import_(other, gone) == 0
        assert import_(other, gone, queue="elsewhere") == 0
    assert import_(other, [msgspec.structs.replace(gone[0], id="00000000-0000-4000-8000-000000000000")] * 2) == 1


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"ordering": "fifo"}, lambda n, _: {}),
        ({"ordering": "priority"}, lambda n, _: {"priority": n * 7 % 5}),
        ({"ordering": "priority", "ageing": 10}, lambda n, _: {"priority": n * 7 % 5 - 2}),
        ({"ordering": "deadline"}, lambda n, at: {"deadline": at} if n % 3 else {}),
    ],
    ids=["fifo", "priority", "ageing", "deadline"],
)
def test_the_order_of_delivery_is_kept(
    store: Store, other: Store, harness: Harness, settings: dict[str, Any], fields: Callable[..., dict[str, Any]]
) -> None:
    for tenant in (store, other):
        tenant.queues.put("jobs", **settings)
    for n in range(30):
        store.publish("jobs", n, **fields(n, harness.clock.time))
        harness.clock.advance(7 * (n % 3))
    for lease in store.claim("jobs", limit=5):
        store.release(lease)
    gone = kept(store)
    for start in range(0, len(gone), 7):
        import_(other, gone[start : start + 7])
    for tenant in (store, other):
        tenant.publish("jobs", "last", **fields(4, harness.clock.time))
    assert payloads(other.claim("jobs", limit=50)) == payloads(store.claim("jobs", limit=50))


def test_groups_keep_their_order(store: Store, other: Store) -> None:
    for tenant in (store, other):
        tenant.queues.put("jobs", group_order=True)
    for n in range(9):
        store.publish("jobs", n, group=f"g{n % 3}")
    store.publish("jobs", "by hand", group="g0", hold="group")
    gone = kept(store)
    assert import_(other, gone) == 10
    assert counts(other, "jobs") == counts(store, "jobs") == {"ready": 3, "held": 7}
    order = []
    while leases := other.claim("jobs", limit=10):
        order.append(payloads(leases))
        for lease in leases:
            other.ack(lease)
    assert order == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    (held,) = other.messages("jobs", state="held")
    assert other.free(held.id)[0].state is State.READY


def test_a_message_that_finds_its_group_busy_waits(store: Store, other: Store) -> None:
    for tenant in (store, other):
        tenant.queues.put("jobs", group_order=True)
    other.publish("jobs", "first", group="g")
    store.publish("jobs", "second", group="g")
    import_(other, kept(store))
    assert counts(other, "jobs") == {"ready": 1, "held": 1}
    assert other.claim("jobs", limit=5)[0].payload == "first"


def test_a_key_stands_for_the_message_it_stood_for(store: Store, other: Store) -> None:
    old = store.publish("jobs", "old", key="k", ttl=DAY)
    lease = store.claim("jobs")[0]
    new = store.publish("jobs", "new", key="k")
    store.nack(lease, delay=0)
    import_(other, kept(store))
    for tenant in (store, other):
        assert tenant.publish("jobs", "newer", key="k").id == new.id
        assert tenant.get(old.id).payload == "old"
        assert counts(tenant, "jobs") == {"ready": 2}


def test_attempts_continue_from_their_count(store: Store, other: Store) -> None:
    store.queues.put("jobs", max_attempts=3)
    store.publish("jobs", 1)
    store.nack(store.claim("jobs")[0], "one", delay=0)
    import_(other, kept(store))
    (lease,) = other.claim("jobs")
    assert (lease.attempt, lease.message.last_error) == (2, "one")
    other.nack(lease, "two", delay=0)
    assert other.nack(other.claim("jobs")[0], "three").state is State.DEAD
    assert [f.error for f in other.get(lease.id).failures] == ["one", "two", "three"]


def test_a_receipt_of_the_other_store_is_refused(store: Store, other: Store) -> None:
    store.publish("jobs", 1)
    (lease,) = store.claim("jobs", lease=60)
    (item,) = inside(store).engine.export_messages(store.tenant, "jobs", State.LEASED, None, 10).items  # type: ignore[union-attr]  # it is there
    assert (item.state, item.attempts) == (State.LEASED, 1)
    import_(other, [msgspec.structs.replace(item, state=State.READY)])
    for settle in (other.ack, other.nack, other.release, other.extend):
        with pytest.raises(tampu.LeaseLost):
            settle(lease)
    assert other.claim("jobs")[0].attempt == 2


def test_delays_and_expiry_count_from_the_original_times(store: Store, other: Store, harness: Harness) -> None:
    store.publish("jobs", "later", delay=60)
    store.publish("jobs", "expires", ttl=30)
    store.publish("jobs", "held and later", hold="person", delay=90)
    import_(other, kept(store))
    assert inside(other).engine.next_due() == harness.clock.now() + 30_000_000
    harness.clock.advance(61)
    harness.sweep()
    assert counts(other, "jobs") == {"ready": 1, "expired": 1, "held": 1}
    held = next(iter(other.messages("jobs", state="held")))
    assert other.free(held.id)[0].state is State.DELAYED


def test_retention_counts_from_the_end_and_results_last_as_long(store: Store, other: Store, harness: Harness) -> None:
    for tenant in (store, other):
        tenant.queues.put("jobs", retention=100, result_ttl=50)
    for n in range(3):
        store.publish("jobs", n)
        store.ack(store.claim("jobs")[0], result=n)
        harness.clock.advance(20)
    import_(other, kept(store))
    assert [m.payload for m in other.messages("jobs", state="done")] == [0, 1, 2]
    assert [other.get(m.id).result for m in other.messages("jobs", state="done")] == [None, 1, 2]
    harness.clock.advance(70)
    harness.trim()
    assert [m.payload for m in other.messages("jobs", state="done")] == [2]
    assert counts(other, "jobs") == counts(store, "jobs")


def test_a_dead_letter_can_be_replayed(store: Store, other: Store) -> None:
    store.publish("jobs", 1, key="k")
    store.reject(store.claim("jobs")[0], "bad")
    import_(other, kept(store))
    assert len(other.replay("jobs", where={"reason": "bad"})) == 1
    assert other.claim("jobs")[0].attempt == 1


def test_imported_messages_can_be_cancelled_purged_and_forgotten(store: Store, other: Store, harness: Harness) -> None:
    messages = store.publish_many("jobs", range(4))
    import_(other, kept(store))
    assert other.cancel(messages[1].id)[0].ok
    assert other.purge("jobs", state="ready") == 3
    harness.clock.advance(30 * DAY)
    harness.trim()
    assert kept(other) == []
    assert import_(other, kept(store)) == 4


def test_idempotency_keys_stand_for_the_first_message(store: Store, other: Store, harness: Harness) -> None:
    first = store.publish("jobs", "a", idempotency_key="i1")
    gone = store.publish("jobs", "b", idempotency_key="i2")
    store.publish("more", "c", idempotency_key="i3")
    harness.clock.advance(1)
    store.publish("jobs", "x", key="k", idempotency_key="i4")
    replaced = store.publish("jobs", "y", key="k", idempotency_key="i5")
    asked = requests(store)
    assert requests(store, limit=1) == requests(store, limit=2) == asked
    assert [(r.key, r.queue) for r in asked] == [
        ("i1", "jobs"), ("i2", "jobs"), ("i3", "more"), ("i4", "jobs"), ("i5", "jobs"),
    ]  # fmt: skip
    mine = [r for r in asked if r.queue == "jobs"]
    assert import_(other, [item for item in kept(store) if item.id != gone.id], mine) == 2
    assert [(r.key, r.id, r.until_us, r.digest) for r in requests(other)] == [
        (r.key, r.id, r.until_us, r.digest) for r in mine
    ]
    for key, payload, id in (("i1", "a", first.id), ("i2", "b", gone.id)):
        again = other.publish("jobs", payload, idempotency_key=key)
        assert (again.id, again.duplicate) == (id, True)
    for key, payload in (("i4", "x"), ("i5", "y")):
        assert other.publish("jobs", payload, key="k", idempotency_key=key).id == replaced.id
    with pytest.raises(tampu.IdempotencyConflict):
        other.publish("jobs", "another body", idempotency_key="i1")
    assert not other.publish("more", "c", idempotency_key="i3").duplicate
    harness.clock.advance(30 * DAY)
    assert requests(other) == []


def test_an_idempotency_key_that_is_in_use_stays(store: Store, other: Store) -> None:
    store.publish("jobs", "a", idempotency_key="i")
    mine = other.publish("jobs", "a", idempotency_key="i")
    assert import_(other, kept(store), requests(store)) == 1
    assert other.publish("jobs", "a", idempotency_key="i").id == mine.id


def test_the_journal_says_where_messages_came_from(store: Store, other: Store) -> None:
    store.publish("jobs", 1, type="a.b")
    store.publish("jobs", 2, type="c.d", delay=60)
    gone = kept(store)
    import_(other, gone)
    transitions = other.journal().transitions
    assert [(t.verb, t.id, t.state, t.type, t.detail) for t in transitions] == [
        ("adopt", gone[0].id, State.READY, "a.b", "the old store"),
        ("adopt", gone[1].id, State.DELAYED, "c.d", "the old store"),
    ]


def test_an_import_wakes_waiting_claims_and_reports_what_is_due(store: Store, other: Store) -> None:
    store.publish_many("jobs", range(3))
    heard: list[object] = []

    class Ear:
        def ready(self, queues: Any) -> None:
            heard.append(dict(queues))

        def due(self, at_us: int) -> None:
            heard.append(at_us)

        def leases_expired(self, queues: Any) -> None:
            heard.append(queues)

        def on_remote_change(self) -> bool:
            return False

    inside(other).engine.listen(Ear())
    import_(other, kept(store))
    assert heard == [{("other", "jobs"): 3}]


def test_a_call_with_a_leased_message_is_refused_whole(store: Store, other: Store, harness: Harness) -> None:
    store.publish_many("jobs", range(2))
    one, two = kept(store)
    other.queues.put("jobs", max_attempts=3)
    with harness.unchanged(other):
        refused = import_(other, [one, msgspec.structs.replace(two, state=State.LEASED)])
        assert isinstance(refused, tampu.InvalidMessage)
        assert isinstance(import_(other, [msgspec.structs.replace(two, state=State.DONE)]), tampu.InvalidMessage)


def test_imported_messages_survive_reopening(store: Store, harness: Harness) -> None:
    store.publish_many("jobs", range(3))
    gone = kept(store)
    import_(harness.open(tenant="other"), gone)
    again = harness.reopen(tenant="other")
    assert import_(again, gone) == 0
    assert payloads(again.claim("jobs", limit=9)) == [0, 1, 2]


def test_an_empty_journal_can_continue_after_an_offset(store: Store) -> None:
    engine: Any = inside(store).engine
    store.queues.put("jobs", max_attempts=2)
    after = {"0": 41, "default/jobs": 41, "no/such": 7, "default": 3}
    (begun,) = engine.run([StartJournal(after)])
    assert begun
    assert begun.items() <= after.items()
    assert engine.run([StartJournal(dict.fromkeys(begun, 99))]) == [{}]
    store.publish_many("jobs", range(2))
    page = store.journal()
    assert [t.offset for t in page.transitions] == [42, 43]
    assert {t.partition for t in page.transitions} <= begun.keys()
    assert store.journal(after={t.partition: 42 for t in page.transitions}).transitions == page.transitions[1:]


def test_a_journal_that_has_begun_stays_as_it_is(store: Store) -> None:
    store.publish("jobs", 1)
    assert inside(store).engine.run([StartJournal({"0": 41, "default/jobs": 41})]) == [{}]
    assert [t.offset for t in store.journal().transitions] == [1]


def test_all_documents_are_found_whatever_they_are_called(store: Store) -> None:
    engine = inside(store).engine
    before = {(d.kind, d.tenant, d.name): d.value for d in engine.all_documents()}  # a server keeps some of its own
    names = list(itertools.product(("kind", "a:b", "c%d"), ("*", "t:u", "x%3Ay"), ("n", "*", "ä:%")))
    for n, name in enumerate(names):
        engine.run([PutDocument(*name, b"%d" % n)])
    found = {(d.kind, d.tenant, d.name): d.value for d in engine.all_documents()}
    assert found == {**before, **{name: b"%d" % n for n, name in enumerate(names)}}
