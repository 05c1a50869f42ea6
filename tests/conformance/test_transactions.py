"""Transactions: publish and settle with the user's own writes, all or nothing."""

import threading

import pytest

from tampu import Ack, InvalidState, LeaseLost, NotFound, QueueFull, State
from tampu.broker import access
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, payloads, until, waits


class Stop(Exception):
    """Leaves a transaction."""


@pytest.fixture
def t(transactional_harness: Harness) -> Store:
    store = transactional_harness.open()
    with store.transaction() as tx:
        tx.execute("CREATE TABLE orders (n INTEGER)")
    return store


def _orders(store: Store) -> list[int]:
    with store.transaction() as tx:
        return [row[0] for row in tx.execute("SELECT n FROM orders ORDER BY n").fetchall()]


def test_messages_and_own_writes_are_committed_together(t: Store) -> None:
    with t.transaction() as tx:
        tx.execute("INSERT INTO orders VALUES (1)")
        message = tx.publish("emails", "order 1")
        tx.publish_many("emails", ["a", "b"])
    assert _orders(t) == [1]
    assert t.get(message.id).state is State.READY
    assert payloads(t.claim("emails", limit=5)) == ["order 1", "a", "b"]


def test_an_error_rolls_both_back(t: Store, transactional_harness: Harness) -> None:
    t.publish("emails", "before")
    with transactional_harness.unchanged(t), pytest.raises(Stop), t.transaction() as tx:  # noqa: PT012 - the block is what is tested
        tx.execute("INSERT INTO orders VALUES (1)")
        tx.publish("emails", 1)
        tx.publish("new.queue", 1, key="k", idempotency_key="i")
        raise Stop
    assert _orders(t) == []
    assert t.queues.list() == ["emails"]
    assert not t.publish("new.queue", 2, key="k", idempotency_key="i").duplicate


def test_work_is_settled_with_its_effects(t: Store) -> None:
    t.publish_many("emails", range(4))
    a, b, c, d = t.claim("emails", limit=4)
    with t.transaction() as tx:
        tx.execute("INSERT INTO orders VALUES (1)")
        tx.ack(a, result="done")
        tx.nack(b, delay=60)
        tx.settle([Ack(c)])
        tx.extend(d, 60)
        tx.reject(d)
    assert counts(t, "emails") == {"done": 2, "delayed": 1, "dead": 1}
    assert t.get(a.id).result == "done"


def test_a_rolled_back_ack_leaves_the_lease(t: Store) -> None:
    t.publish("emails", 1)
    lease = t.claim("emails")[0]
    with pytest.raises(Stop), t.transaction() as tx:  # noqa: PT012 - the block is what is tested
        tx.ack(lease)
        raise Stop
    assert t.get(lease.id).state is State.LEASED
    t.ack(lease)


def test_a_lost_lease_in_a_transaction_rolls_back_the_own_writes(t: Store, transactional_harness: Harness) -> None:
    t.publish("emails", 1)
    stale = t.claim("emails", lease=10)[0]
    transactional_harness.clock.advance(10)
    transactional_harness.sweep()
    with pytest.raises(LeaseLost), t.transaction() as tx:  # noqa: PT012 - the block is what is tested
        tx.execute("INSERT INTO orders VALUES (1)")
        tx.ack(stale)
    assert _orders(t) == []


def test_after_a_caught_error_the_rest_of_a_transaction_commits(t: Store) -> None:
    t.queues.put("emails", max_depth=1)
    with t.transaction() as tx:
        tx.publish("emails", 1)
        with pytest.raises(QueueFull):
            tx.publish("emails", 2, key="k")
        with pytest.raises(QueueFull):
            tx.publish_many("emails", [3, 4])
        tx.execute("INSERT INTO orders VALUES (7)")
    assert _orders(t) == [7]
    assert [m.payload for m in t.messages("emails")] == [1]
    assert [x.verb for x in t.journal().transitions] == ["publish"]


def test_what_is_published_inside_is_not_delivered_before_the_commit(t: Store) -> None:
    inside, claimed = threading.Event(), []

    def claim() -> None:
        inside.wait(60)
        claimed.extend(t.claim("emails", limit=5))

    worker = threading.Thread(target=claim)
    worker.start()
    with pytest.raises(Stop), t.transaction() as tx:  # noqa: PT012 - the block is what is tested
        tx.publish("emails", 1)
        inside.set()
        raise Stop
    worker.join(60)
    assert claimed == []


def test_a_waiting_claim_is_woken_by_the_commit(t: Store) -> None:
    claimed: list[object] = []
    worker = threading.Thread(target=lambda: claimed.extend(payloads(t.claim("emails", wait=240))))
    worker.start()
    until(lambda: waits(t))
    with t.transaction() as tx:
        tx.publish("emails", "in a transaction")
    worker.join(60)
    assert claimed == ["in a transaction"]


def test_calling_the_store_itself_inside_is_refused(t: Store) -> None:
    with t.transaction() as tx:
        tx.publish("emails", 1)
        for call in (lambda: t.publish("emails", 2), lambda: t.stats("emails"), lambda: t.claim("emails")):
            with pytest.raises(InvalidState):
                call()
        with pytest.raises(InvalidState), t.transaction():
            pass
    assert counts(t, "emails") == {"ready": 1}


def test_an_empty_transaction_changes_nothing(t: Store, transactional_harness: Harness) -> None:
    t.publish("emails", 1)
    with transactional_harness.unchanged(t), t.transaction():
        pass


def test_cancel_works_in_a_transaction(t: Store) -> None:
    message = t.publish("emails", 1)
    with t.transaction() as tx:
        (outcome,) = tx.cancel(message.id)
        assert outcome.state is State.CANCELLED
        (missing,) = tx.cancel("019b76da-a800-7000-8000-000000000001")
        assert isinstance(missing.error, NotFound)
    assert t.get(message.id).state is State.CANCELLED


def test_engines_with_the_capability_say_so(t: Store) -> None:
    assert "transaction" in access.engine(t).capabilities
