"""Tenants: nothing crosses. Ids, keys, receipts, settings, limits, journal."""

from uuid import uuid4

import pytest

from tampu import Ack, LeaseLost, NotFound, QueueFull, State
from tampu.broker.queue import Queue
from tests.conformance.house import House, counts, payloads


@pytest.fixture
def b(house: House, q: Queue) -> Queue:
    """Another tenant on the same store (after the first, which a private store needs)."""
    return house.open(tenant="b")


def test_messages_of_one_tenant_are_not_delivered_to_another(q: Queue, b: Queue) -> None:
    q.publish("emails", "a")
    assert b.claim("emails") == []
    b.publish("emails", "b")
    assert payloads(q.claim("emails", limit=5)) == ["a"]
    assert payloads(b.claim("emails", limit=5)) == ["b"]
    assert b.messages("emails").messages[0].tenant == "b"


def test_ids_of_one_tenant_mean_nothing_to_another(q: Queue, b: Queue, house: House) -> None:
    waiting = q.publish("emails", 1)
    held = q.publish("emails", 2, hold="x")
    b.publish("emails", 3)
    with house.unchanged(q, b):
        with pytest.raises(NotFound):
            b.get(waiting.id)
        for outcome in (*b.cancel(waiting.id), *b.free(held.id), *b.replay("emails", ids=[waiting.id]).outcomes):
            assert isinstance(outcome.error, NotFound)


def test_a_receipt_of_another_tenant_is_no_lease(q: Queue, b: Queue, house: House) -> None:
    q.publish("emails", 1)
    b.publish("emails", 2)
    lease = q.claim("emails")[0]
    with house.unchanged(q, b):
        for settle in (b.ack, b.nack, b.reject, b.release, b.extend):
            with pytest.raises(LeaseLost):
                settle(lease.receipt)
            with pytest.raises(LeaseLost):
                settle(lease)
        assert not b.settle([Ack(lease)])[0].ok
    q.ack(lease)
    with house.unchanged(q, b), pytest.raises(LeaseLost):
        b.ack(lease)


def test_the_same_key_in_two_tenants_is_two_messages(q: Queue, b: Queue) -> None:
    one = q.publish("emails", "a", key="k")
    two = b.publish("emails", "b", key="k")
    assert one.id != two.id
    b.publish("emails", "b2", key="k")
    assert (q.get(one.id).payload, b.get(two.id).payload) == ("a", "b2")


def test_the_same_idempotency_key_in_two_tenants_is_two_messages(q: Queue, b: Queue) -> None:
    one = q.publish("emails", "a", idempotency_key="i")
    two = b.publish("emails", "b", idempotency_key="i")
    assert one.id != two.id
    assert not two.duplicate
    assert q.publish("emails", "a", idempotency_key="i").id == one.id
    assert b.publish("emails", "b", idempotency_key="i").id == two.id


def test_the_same_own_id_in_two_tenants_is_two_messages(q: Queue, b: Queue) -> None:
    own = str(uuid4())
    q.publish("emails", "a", id=own)
    second = b.publish("emails", "b", id=own)
    assert not second.duplicate
    assert (q.get(own).payload, b.get(own).payload) == ("a", "b")
    assert b.publish("emails", "c", id=own).duplicate
    b.cancel(own)
    assert (q.get(own).state, b.get(own).state) == (State.READY, State.CANCELLED)
    assert q.claim("emails")[0].id == own


def test_the_id_of_another_tenants_message_may_be_used(q: Queue, b: Queue) -> None:
    """Copying a message with its id to another tenant tells nothing and touches nothing."""
    first = q.publish("emails", "a")
    copy = b.publish("emails", "b", id=first.id)
    assert (copy.id, copy.duplicate) == (first.id, False)
    assert (q.get(first.id).payload, b.get(first.id).payload) == ("a", "b")
    assert (q.claim("emails")[0].id, b.claim("emails")[0].id) == (first.id, first.id)


def test_settings_of_one_tenant_do_not_hold_in_another(q: Queue, b: Queue) -> None:
    q.queues.put("*", max_attempts=1)
    q.queues.put("emails", max_depth=1)
    q.publish("emails", 1)
    with pytest.raises(QueueFull):
        q.publish("emails", 2)
    assert [m.max_attempts for m in b.publish_many("emails", range(3))] == [5, 5, 5]
    q.pause("emails")
    assert len(b.claim("emails", limit=5)) == 3
    assert b.queues.get("emails").max_depth == 0


def test_queues_stats_and_purge_are_of_the_own_tenant(q: Queue, b: Queue) -> None:
    q.publish_many("emails", range(3))
    q.publish("only.here", 1)
    b.publish("emails", 1)
    assert q.queues.list() == ["emails", "only.here"]
    assert b.queues.list() == ["emails"]
    assert [s.queue for s in b.stats()] == ["emails"]
    with pytest.raises(NotFound):
        b.stats("only.here")
    assert b.purge("emails", state="ready") == 1
    assert counts(q, "emails") == {"ready": 3}


def test_limits_in_flight_are_of_the_own_tenant(q: Queue, b: Queue) -> None:
    for tenant in (q, b):
        tenant.queues.put("emails", max_in_flight=2, rate=2)
        tenant.publish_many("emails", range(5))
    assert len(q.claim("emails", limit=5)) == 2
    assert len(b.claim("emails", limit=5)) == 2


def test_the_journal_shows_only_the_own_tenant(q: Queue, b: Queue) -> None:
    mine = {q.publish("emails", 1).id}
    b.publish_many("emails", range(3))
    mine |= {m.id for m in q.publish_many("emails", range(2))}
    page = q.journal()
    assert {t.id for t in page.transitions} == mine
    assert {t.tenant for t in page.transitions} == {"default"}
    assert not mine & {t.id for t in b.journal().transitions}
    if set(page.position) == {"0"}:  # one journal for all: others' records are passed over
        assert b.journal(after=page.position).transitions == []
    else:
        assert not set(page.position) & set(b.journal().position)


def test_groups_of_two_tenants_do_not_meet(q: Queue, b: Queue) -> None:
    for tenant in (q, b):
        tenant.queues.put("jobs", group_order=True)
    q.publish("jobs", 1, group="g")
    assert b.publish("jobs", 2, group="g").state is State.READY
