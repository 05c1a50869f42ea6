"""Tenants are isolated: ids, keys, receipts, settings, limits, journal."""

from uuid import uuid4

import pytest

from tampu import Ack, InvalidMessage, LeaseLost, NotFound, QueueFull, State
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, payloads


@pytest.fixture
def b(harness: Harness, store: Store) -> Store:
    """Another tenant on the same store (after the first, which a private store needs)."""
    return harness.open(tenant="b")


def test_messages_of_one_tenant_are_not_delivered_to_another(store: Store, b: Store) -> None:
    store.publish("emails", "a")
    assert b.claim("emails") == []
    b.publish("emails", "b")
    assert payloads(store.claim("emails", limit=5)) == ["a"]
    assert payloads(b.claim("emails", limit=5)) == ["b"]
    assert b.messages("emails").messages[0].tenant == "b"


def test_ids_of_one_tenant_mean_nothing_to_another(store: Store, b: Store, harness: Harness) -> None:
    waiting = store.publish("emails", 1)
    held = store.publish("emails", 2, hold="x")
    b.publish("emails", 3)
    with harness.unchanged(store, b):
        with pytest.raises(NotFound):
            b.get(waiting.id)
        for outcome in (*b.cancel(waiting.id), *b.free(held.id), *b.replay("emails", ids=[waiting.id]).outcomes):
            assert isinstance(outcome.error, NotFound)


def test_a_receipt_of_another_tenant_is_refused(store: Store, b: Store, harness: Harness) -> None:
    store.publish("emails", 1)
    b.publish("emails", 2)
    lease = store.claim("emails")[0]
    with harness.unchanged(store, b):
        for settle in (b.ack, b.nack, b.reject, b.release, b.extend):
            with pytest.raises(LeaseLost):
                settle(lease.receipt)
            with pytest.raises(LeaseLost):
                settle(lease)
        assert not b.settle([Ack(lease)])[0].ok
    store.ack(lease)
    with harness.unchanged(store, b), pytest.raises(LeaseLost):
        b.ack(lease)


def test_the_same_key_in_two_tenants_is_two_messages(store: Store, b: Store) -> None:
    one = store.publish("emails", "a", key="k")
    two = b.publish("emails", "b", key="k")
    assert one.id != two.id
    b.publish("emails", "b2", key="k")
    assert (store.get(one.id).payload, b.get(two.id).payload) == ("a", "b2")


def test_the_same_idempotency_key_in_two_tenants_is_two_messages(store: Store, b: Store) -> None:
    one = store.publish("emails", "a", idempotency_key="i")
    two = b.publish("emails", "b", idempotency_key="i")
    assert one.id != two.id
    assert not two.duplicate
    assert store.publish("emails", "a", idempotency_key="i").id == one.id
    assert b.publish("emails", "b", idempotency_key="i").id == two.id


def test_the_same_own_id_in_two_tenants_is_two_messages(store: Store, b: Store) -> None:
    own = str(uuid4())
    store.publish("emails", "a", id=own)
    second = b.publish("emails", "b", id=own)
    assert not second.duplicate
    assert (store.get(own).payload, b.get(own).payload) == ("a", "b")
    assert b.publish("emails", "c", id=own).duplicate
    b.cancel(own)
    assert (store.get(own).state, b.get(own).state) == (State.READY, State.CANCELLED)
    assert store.claim("emails")[0].id == own


def test_the_id_of_a_message_of_another_tenant_is_refused_like_any_made_by_the_store(store: Store, b: Store) -> None:
    """It tells nothing and touches nothing."""
    ids = [message.id for message in store.publish_many("emails", ["a", "gone"])]
    store.cancel(ids[1])
    store.purge("emails", state="cancelled")
    errors = set()
    for id in ids:
        with pytest.raises(InvalidMessage) as refused:
            b.publish("emails", "b", id=id)
        errors.add(str(refused.value))
    assert len(errors) == 1
    assert (store.get(ids[0]).payload, b.queues.list()) == ("a", [])


def test_settings_of_one_tenant_do_not_affect_another(store: Store, b: Store) -> None:
    store.queues.put("*", max_attempts=1)
    store.queues.put("emails", max_depth=1)
    store.publish("emails", 1)
    with pytest.raises(QueueFull):
        store.publish("emails", 2)
    assert [m.max_attempts for m in b.publish_many("emails", range(3))] == [5, 5, 5]
    store.pause("emails")
    assert len(b.claim("emails", limit=5)) == 3
    assert b.queues.get("emails").max_depth == 0


def test_queues_stats_and_purge_see_only_their_tenant(store: Store, b: Store) -> None:
    store.publish_many("emails", range(3))
    store.publish("only.here", 1)
    b.publish("emails", 1)
    assert store.queues.list() == ["emails", "only.here"]
    assert b.queues.list() == ["emails"]
    assert [s.queue for s in b.stats()] == ["emails"]
    with pytest.raises(NotFound):
        b.stats("only.here")
    assert b.purge("emails", state="ready") == 1
    assert counts(store, "emails") == {"ready": 3}


def test_limits_in_flight_count_only_their_tenant(store: Store, b: Store) -> None:
    for tenant in (store, b):
        tenant.queues.put("emails", max_in_flight=2, rate=2)
        tenant.publish_many("emails", range(5))
    assert len(store.claim("emails", limit=5)) == 2
    assert len(b.claim("emails", limit=5)) == 2


def test_the_journal_shows_only_its_tenant(store: Store, b: Store) -> None:
    mine = {store.publish("emails", 1).id}
    b.publish_many("emails", range(3))
    mine |= {m.id for m in store.publish_many("emails", range(2))}
    page = store.journal()
    assert {t.id for t in page.transitions} == mine
    assert {t.tenant for t in page.transitions} == {"default"}
    assert not mine & {t.id for t in b.journal().transitions}
    if set(page.position) == {"0"}:  # one journal for all: others' records are passed over
        assert b.journal(after=page.position).transitions == []
    else:
        assert not set(page.position) & set(b.journal().position)


def test_groups_of_two_tenants_are_independent(store: Store, b: Store) -> None:
    for tenant in (store, b):
        tenant.queues.put("jobs", group_order=True)
    store.publish("jobs", 1, group="g")
    assert b.publish("jobs", 2, group="g").state is State.READY
