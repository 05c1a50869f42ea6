"""Retention: removes what has ended and is old enough, in bounded steps, and nothing else."""

from tampu import Ack, State
from tampu.broker.queue import Queue
from tampu.keepers.trimmer import Trimmer
from tests.conformance.house import House, counts, inside

DAY = 86_400


def _one_of_each(q: Queue, house: House) -> dict[str, str]:
    ids = {"done": q.publish("emails", 1).id}
    q.ack(q.claim("emails")[0], result="r")
    ids["dead"] = q.publish("emails", 1).id
    q.reject(q.claim("emails")[0], error="x")
    ids["leased"] = q.publish("emails", 1).id
    q.claim("emails", lease=100 * DAY)
    ids["cancelled"] = q.publish("emails", 1).id
    q.cancel(ids["cancelled"])
    ids["expired"] = q.publish("emails", 1, ttl=1).id
    house.clock.advance(1)
    house.sweep()
    ids["ready"] = q.publish("emails", 1).id
    ids["delayed"] = q.publish("emails", 1, delay=100 * DAY).id
    ids["held"] = q.publish("emails", 1, hold="x").id
    return ids


def test_only_ended_messages_are_removed_never_live_or_dead_ones(q: Queue, house: House) -> None:
    ids = _one_of_each(q, house)
    house.clock.advance(30 * DAY)
    house.trim()
    assert counts(q, "emails") == {"ready": 1, "delayed": 1, "leased": 1, "held": 1, "dead": 1}
    for state in ("ready", "delayed", "leased", "held", "dead"):
        assert q.get(ids[state]).state == state


def test_nothing_is_removed_before_its_time(q: Queue, house: House) -> None:
    _one_of_each(q, house)
    house.clock.advance(DAY - 2)
    with house.unchanged(q):
        house.trim()


def test_each_queue_has_its_own_retention(q: Queue, house: House) -> None:
    q.queues.put("short", retention=60)
    q.queues.put("long", retention=10 * DAY)
    ids = {}
    for name in ("short", "long", "plain"):
        ids[name] = q.publish(name, 1).id
        q.ack(q.claim(name)[0])
    house.clock.advance(60)
    house.trim()
    assert [counts(q, name) for name in ids] == [{}, {"done": 1}, {"done": 1}]
    house.clock.advance(2 * DAY)
    house.trim()
    assert [counts(q, name) for name in ids] == [{}, {"done": 1}, {}]
    assert q.get(ids["long"]).state is State.DONE


def test_the_default_retention_of_the_tenant_holds(q: Queue, house: House) -> None:
    other = house.open(tenant="other")
    q.queues.put("*", retention=60)
    for tenant in (q, other):
        tenant.publish("emails", 1)
        tenant.ack(tenant.claim("emails")[0])
    house.clock.advance(61)
    house.trim()
    assert (counts(q, "emails"), counts(other, "emails")) == ({}, {"done": 1})


def test_many_are_removed_in_several_steps(q: Queue, house: House) -> None:
    q.publish_many("emails", range(1700))
    while leases := q.claim("emails", limit=300):
        for start in range(0, len(leases), 100):
            q.settle([Ack(lease) for lease in leases[start : start + 100]])
    assert counts(q, "emails") == {"done": 1700}
    house.clock.advance(2 * DAY)
    house.trim()
    assert counts(q, "emails") == {}
    assert list(q.messages("emails")) == []


def test_a_replayed_message_is_live_again_and_stays(q: Queue, house: House) -> None:
    message = q.publish("emails", 1)
    q.reject(q.claim("emails")[0])
    house.clock.advance(30 * DAY)
    q.replay("emails", ids=[message.id])
    house.trim()
    assert q.claim("emails")[0].id == message.id


def test_the_journal_is_kept_for_its_own_time(q: Queue, house: House) -> None:
    q.publish("emails", "old")
    house.clock.advance(3600)
    new = q.publish("emails", "new")
    house.trim(journal=3601)
    assert len(q.journal().transitions) == 2
    house.trim(journal=3599)
    assert [t.id for t in q.journal().transitions] == [new.id]
    assert q.stats("emails").ready == 2


def test_one_large_batch_is_removed_in_bounded_steps(q: Queue, house: House) -> None:
    """A step never removes more than it may, however many messages ended in one commit."""
    q.publish_many("emails", list(range(1200)))
    q.settle([Ack(lease) for lease in q.claim("emails", limit=1200)])
    house.clock.advance(2 * DAY)
    trimmer = Trimmer(inside(q), 7 * 86_400_000_000)
    page = q.messages("emails", state="done", limit=100)
    left = [1200]
    while trimmer.step():
        left.append(q.stats("emails").done)
        assert left[-2] - left[-1] <= 500
        assert len(q.messages("emails", state="done", limit=2000)) == left[-1]
    assert left[-1] == 0
    assert not q.messages("emails", state="done", after=page.cursor).messages


def test_a_page_goes_on_where_it_was_while_older_messages_are_removed(q: Queue, house: House) -> None:
    q.publish_many("emails", list(range(900)))
    q.settle([Ack(lease) for lease in q.claim("emails", limit=900)])
    page = q.messages("emails", state="done", limit=600)
    house.clock.advance(2 * DAY)
    Trimmer(inside(q), 7 * 86_400_000_000).step()
    rest = q.messages("emails", state="done", limit=900, after=page.cursor)
    assert [m.payload for m in rest] == list(range(600, 900))


def test_a_reader_of_a_journal_that_was_removed_has_no_backlog(q: Queue, house: House) -> None:
    q.publish("jobs", 1)
    house.clock.advance(3600)
    house.trim(journal=60)
    page = q.journal()
    assert (page.transitions, page.position) == ([], page.latest)
    q.publish("jobs", 2)
    assert [t.verb for t in q.journal(after=page.position).transitions] == ["publish"]
