"""Retention: removes what has ended and is old enough, in bounded steps, and nothing else."""

from tampu import Ack, State
from tampu.broker.store import Store
from tampu.maintenance.tasks import Trimmer
from tests.conformance.harness import Harness, counts, inside

DAY = 86_400


def _one_of_each(store: Store, harness: Harness) -> dict[str, str]:
    ids = {"done": store.publish("emails", 1).id}
    store.ack(store.claim("emails")[0], result="r")
    ids["dead"] = store.publish("emails", 1).id
    store.reject(store.claim("emails")[0], error="x")
    ids["leased"] = store.publish("emails", 1).id
    store.claim("emails", lease=100 * DAY)
    ids["cancelled"] = store.publish("emails", 1).id
    store.cancel(ids["cancelled"])
    ids["expired"] = store.publish("emails", 1, ttl=1).id
    harness.clock.advance(1)
    harness.sweep()
    ids["ready"] = store.publish("emails", 1).id
    ids["delayed"] = store.publish("emails", 1, delay=100 * DAY).id
    ids["held"] = store.publish("emails", 1, hold="x").id
    return ids


def test_only_ended_messages_are_removed_never_live_or_dead_ones(store: Store, harness: Harness) -> None:
    ids = _one_of_each(store, harness)
    harness.clock.advance(30 * DAY)
    harness.trim()
    assert counts(store, "emails") == {"ready": 1, "delayed": 1, "leased": 1, "held": 1, "dead": 1}
    for state in ("ready", "delayed", "leased", "held", "dead"):
        assert store.get(ids[state]).state == state


def test_nothing_is_removed_before_its_time(store: Store, harness: Harness) -> None:
    _one_of_each(store, harness)
    harness.clock.advance(DAY - 2)
    with harness.unchanged(store):
        harness.trim()


def test_each_queue_has_its_own_retention(store: Store, harness: Harness) -> None:
    store.queues.put("short", retention=60)
    store.queues.put("long", retention=10 * DAY)
    ids = {}
    for name in ("short", "long", "plain"):
        ids[name] = store.publish(name, 1).id
        store.ack(store.claim(name)[0])
    harness.clock.advance(60)
    harness.trim()
    assert [counts(store, name) for name in ids] == [{}, {"done": 1}, {"done": 1}]
    harness.clock.advance(2 * DAY)
    harness.trim()
    assert [counts(store, name) for name in ids] == [{}, {"done": 1}, {}]
    assert store.get(ids["long"]).state is State.DONE


def test_the_default_retention_of_the_tenant_counts(store: Store, harness: Harness) -> None:
    other = harness.open(tenant="other")
    store.queues.put("*", retention=60)
    for tenant in (store, other):
        tenant.publish("emails", 1)
        tenant.ack(tenant.claim("emails")[0])
    harness.clock.advance(61)
    harness.trim()
    assert (counts(store, "emails"), counts(other, "emails")) == ({}, {"done": 1})


def test_many_are_removed_in_several_steps(store: Store, harness: Harness) -> None:
    store.publish_many("emails", range(1700))
    while leases := store.claim("emails", limit=300):
        for start in range(0, len(leases), 100):
            store.settle([Ack(lease) for lease in leases[start : start + 100]])
    assert counts(store, "emails") == {"done": 1700}
    harness.clock.advance(2 * DAY)
    harness.trim()
    assert counts(store, "emails") == {}
    assert list(store.messages("emails")) == []


def test_a_replayed_message_is_live_again_and_stays(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1)
    store.reject(store.claim("emails")[0])
    harness.clock.advance(30 * DAY)
    store.replay("emails", ids=[message.id])
    harness.trim()
    assert store.claim("emails")[0].id == message.id


def test_the_journal_is_kept_for_its_own_time(store: Store, harness: Harness) -> None:
    store.publish("emails", "old")
    harness.clock.advance(3600)
    new = store.publish("emails", "new")
    harness.trim(journal=3601)
    assert len(store.journal().transitions) == 2
    harness.trim(journal=3599)
    assert [t.id for t in store.journal().transitions] == [new.id]
    assert store.stats("emails").ready == 2


def test_one_large_batch_is_removed_in_bounded_steps(store: Store, harness: Harness) -> None:
    """A step never removes more than it may, however many messages ended in one commit."""
    store.publish_many("emails", list(range(1200)))
    store.settle([Ack(lease) for lease in store.claim("emails", limit=1200)])
    harness.clock.advance(2 * DAY)
    trimmer = Trimmer(inside(store), 7 * 86_400_000_000)
    page = store.messages("emails", state="done", limit=100)
    left = [1200]
    while trimmer.step():
        left.append(store.stats("emails").done)
        assert left[-2] - left[-1] <= 500
        assert len(store.messages("emails", state="done", limit=2000)) == left[-1]
    assert left[-1] == 0
    assert not store.messages("emails", state="done", after=page.cursor).messages


def test_paging_continues_while_older_messages_are_removed(store: Store, harness: Harness) -> None:
    store.publish_many("emails", list(range(900)))
    store.settle([Ack(lease) for lease in store.claim("emails", limit=900)])
    page = store.messages("emails", state="done", limit=600)
    harness.clock.advance(2 * DAY)
    Trimmer(inside(store), 7 * 86_400_000_000).step()
    rest = store.messages("emails", state="done", limit=900, after=page.cursor)
    assert [m.payload for m in rest] == list(range(600, 900))


def test_a_reader_of_a_journal_that_was_removed_has_no_backlog(store: Store, harness: Harness) -> None:
    store.publish("jobs", 1)
    harness.clock.advance(3600)
    harness.trim(journal=60)
    page = store.journal()
    assert (page.transitions, page.position) == ([], page.latest)
    store.publish("jobs", 2)
    assert [t.verb for t in store.journal(after=page.position).transitions] == ["publish"]
