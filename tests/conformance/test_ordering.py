"""Order: fifo, priority with ageing, deadline; and what happens when a queue with a backlog changes it."""

import random
from datetime import timedelta

import pytest

from tampu import NewMessage
from tampu.broker.core import Step
from tampu.broker.queue import AllVerbs, Queue
from tampu.engines.port import Rerank
from tests.conformance.house import House, inside, payloads


def _drain(q: Queue, step: int = 7) -> list[object]:
    found: list[object] = []
    while leases := q.claim("jobs", limit=step):
        found += payloads(leases)
    return found


def test_fifo_is_publish_order(q: Queue, house: House) -> None:
    for n in range(10):
        q.publish("jobs", 2 * n, priority=n)
        q.publish_many("jobs", [2 * n + 1])
        if n % 3 == 0:
            house.clock.advance(0.5)
    assert _drain(q) == list(range(20))


def test_priority_where_it_has_no_effect_is_told_once_for_each_queue(
    q: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    q.queues.put("urgent", ordering="priority")
    q.queues.put("timely", ordering="deadline")
    with caplog.at_level("WARNING", logger="tampu"):
        q.publish("urgent", 1, priority=5)
        q.publish("jobs", 1, priority=0, labels={"a": "b"})
        assert "priority" not in caplog.text
        for _ in range(2):
            q.publish("jobs", 1, priority=5)
            q.publish_many("timely", [1, NewMessage(2, priority=-1)])
    told = [record.getMessage() for record in caplog.records if "priority" in record.getMessage()]
    assert [line.partition(";")[0] for line in told] == [
        "priority has no effect in queue jobs: its ordering is fifo",
        "priority has no effect in queue timely: its ordering is deadline",
    ]


def test_priority_is_higher_first_then_publish_order(q: Queue, seed: int) -> None:
    dice = random.Random(seed)
    q.queues.put("jobs", ordering="priority")
    given = [(dice.randint(-5, 5), n) for n in range(60)]
    for start in range(0, 60, 6):
        q.publish_many("jobs", [NewMessage([p, n], priority=p) for p, n in given[start : start + 6]])
    assert _drain(q) == [[p, n] for p, n in sorted(given, key=lambda item: (-item[0], item[1]))]


def test_extreme_priorities_are_still_ordered(q: Queue) -> None:
    q.queues.put("jobs", ordering="priority")
    for priority in (0, -1_000_000_000, 1_000_000_000, 1):
        q.publish("jobs", priority, priority=priority)
    assert _drain(q) == [1_000_000_000, 1, 0, -1_000_000_000]


def test_ageing_lets_old_low_priority_overtake_newer_high_priority(q: Queue, house: House) -> None:
    q.queues.put("jobs", ordering="priority", ageing=60)
    q.publish("jobs", "low, old", priority=0)
    house.clock.advance(5 * 60 + 1)
    q.publish("jobs", "five steps, new", priority=5)
    q.publish("jobs", "six steps, new", priority=6)
    assert _drain(q) == ["six steps, new", "low, old", "five steps, new"]


def test_ageing_before_its_time_keeps_priority_first(q: Queue, house: House) -> None:
    q.queues.put("jobs", ordering="priority", ageing=60)
    q.publish("jobs", "low", priority=0)
    house.clock.advance(59)
    q.publish("jobs", "high", priority=1)
    assert _drain(q) == ["high", "low"]


def test_without_ageing_priority_never_yields(q: Queue, house: House) -> None:
    q.queues.put("jobs", ordering="priority")
    q.publish("jobs", "low", priority=0)
    house.clock.advance(365 * 86_400)
    q.publish("jobs", "high", priority=1)
    assert _drain(q) == ["high", "low"]


def test_extreme_priority_with_long_ageing_is_taken_and_ordered(q: Queue) -> None:
    q.queues.put("jobs", ordering="priority", ageing=timedelta(days=36_500))
    for priority in (-1_000_000_000, 0, 1_000_000_000):
        q.publish("jobs", priority, priority=priority)
    assert _drain(q) == [1_000_000_000, 0, -1_000_000_000]


def test_deadline_is_earliest_first_and_none_last(q: Queue, house: House) -> None:
    q.queues.put("jobs", ordering="deadline")
    now = house.clock.time
    q.publish("jobs", "none 1")
    q.publish("jobs", "later", deadline=now + timedelta(days=2))
    q.publish("jobs", "soon", deadline=now + timedelta(seconds=1))
    q.publish("jobs", "none 2")
    q.publish("jobs", "passed", deadline=now - timedelta(days=1))
    q.publish("jobs", "soon too", deadline=now + timedelta(seconds=1))
    assert _drain(q) == ["passed", "soon", "soon too", "later", "none 1", "none 2"]


def test_a_deadline_that_passed_does_not_end_the_message(q: Queue, house: House) -> None:
    message = q.publish("jobs", 1, deadline=house.clock.time + timedelta(seconds=1))
    house.clock.advance(3600)
    house.sweep()
    assert q.claim("jobs")[0].id == message.id


def test_delayed_work_comes_to_the_back_of_its_rank(q: Queue, house: House) -> None:
    q.queues.put("jobs", ordering="priority")
    q.publish("jobs", "delayed high", priority=1, delay=10)
    q.publish("jobs", "high", priority=1)
    q.publish("jobs", "low")
    house.clock.advance(10)
    assert _drain(q) == ["high", "delayed high", "low"]


def test_delayed_work_becomes_ready_in_the_order_it_is_due(q: Queue, house: House) -> None:
    for n, delay in enumerate([30, 10, 20, 10]):
        q.publish("jobs", n, delay=delay)
    house.clock.advance(60)
    assert _drain(q) == [1, 3, 2, 0]


def test_retried_work_keeps_its_priority(q: Queue) -> None:
    q.queues.put("jobs", ordering="priority")
    q.publish("jobs", "high", priority=9)
    q.publish("jobs", "low")
    q.nack(q.claim("jobs")[0], delay=0)
    assert _drain(q) == ["high", "low"]


@pytest.mark.parametrize("back", ["reset", "inherit"])
def test_changing_the_ordering_ranks_the_backlog_anew(q: Queue, house: House, back: str) -> None:
    now = house.clock.time
    for n, (priority, hours) in enumerate([(1, 3), (3, 2), (2, 1)]):
        q.publish("jobs", n, priority=priority, deadline=now + timedelta(hours=hours))
    q.queues.put("jobs", ordering="priority")
    assert [m.payload for m in q.messages("jobs")] == [1, 2, 0]
    q.queues.put("jobs", ordering="deadline")
    assert [m.payload for m in q.messages("jobs")] == [2, 1, 0]
    if back == "reset":
        q.queues.reset("jobs")
    else:
        q.queues.put("jobs", ordering=None)
    assert _drain(q) == [0, 1, 2]


def test_a_new_ordering_holds_for_all_of_a_large_backlog(q: Queue) -> None:
    """More than one step of re-ranking, with messages in every waiting state."""
    given = [NewMessage(n, priority=n % 7) for n in range(1300)]
    q.publish_many("jobs", given)
    q.queues.put("jobs", ordering="priority")
    assert _drain(q, 1000) == sorted(range(1300), key=lambda n: (-(n % 7), n))


def test_a_new_ordering_holds_for_what_comes_back_later(q: Queue, house: House) -> None:
    for n in range(4):
        q.publish("jobs", n, priority=n, delay=10)
    q.publish("jobs", "leased", priority=99)
    lease = q.claim("jobs")[0]
    q.publish("jobs", "held", priority=50, hold="later")
    q.queues.put("jobs", ordering="priority")
    house.clock.advance(10)
    q.nack(lease, delay=0)
    q.free(q.messages("jobs", state="held").messages[0].id)
    assert _drain(q) == ["leased", "held", 3, 2, 1, 0]


def test_the_default_ordering_of_all_queues_holds_for_each(q: Queue) -> None:
    for name in ("jobs", "other"):
        q.publish(name, "low", priority=0)
        q.publish(name, "high", priority=1)
    q.queues.put("other", ordering="fifo")
    q.queues.put("*", ordering="priority")
    assert payloads(q.claim("jobs", limit=2)) == ["high", "low"]
    assert payloads(q.claim("other", limit=2)) == ["low", "high"]


def test_a_new_ordering_holds_for_dead_letters_that_are_replayed(q: Queue) -> None:
    q.queues.put("jobs", ordering="deadline")
    q.publish("jobs", "dead")
    q.reject(q.claim("jobs")[0])
    q.queues.put("jobs", ordering="fifo")
    q.replay("jobs", where={})
    q.publish("jobs", "new")
    assert payloads(q.claim("jobs", limit=2)) == ["dead", "new"]


def test_a_batch_cut_by_cancels_claims_and_releases_keeps_its_order(q: Queue) -> None:
    made = q.publish_many("jobs", list(range(30)))
    q.cancel(made[0].id, made[7].id, made[8].id, made[29].id)
    first = q.claim("jobs", limit=3)
    assert payloads(first) == [1, 2, 3]
    q.release(first[1])
    assert q.stats("jobs").counts["ready"] == 24
    listed, after = [], None
    while True:
        page = q.messages("jobs", state="ready", limit=4, after=after)
        listed += [message.payload for message in page]
        after = page.cursor
        if after is None:
            break
    expected = [n for n in range(4, 29) if n not in (7, 8)] + [2]
    assert listed == expected
    assert q.get(made[20].id).state == "ready"
    assert q.get(made[8].id).state == "cancelled"
    assert _drain(q) == expected


def test_changing_the_order_half_way_through_a_batch_reaches_every_message(q: Queue) -> None:
    q.publish_many("jobs", [NewMessage(n, priority=n % 3) for n in range(20)])
    assert payloads(q.claim("jobs", limit=5)) == [0, 1, 2, 3, 4]
    q.queues.put("jobs", ordering="priority")
    assert _drain(q) == sorted(range(5, 20), key=lambda n: (-(n % 3), n))


def test_many_calls_take_one_batch_apart_without_losing_any(q: Queue, seed: int) -> None:
    dice = random.Random(seed)
    made = q.publish_many("jobs", list(range(200)))
    cancelled = {m.payload for m in dice.sample(made, 50)}
    q.cancel(*[m.id for m in made if m.payload in cancelled])
    found: list[object] = []
    while leases := q.claim("jobs", limit=dice.randint(1, 20)):
        found += payloads(leases)
    assert found == [n for n in range(200) if n not in cancelled]


def test_a_change_of_ordering_that_was_cut_short_is_finished_by_the_keepers(q: Queue, house: House) -> None:
    for start in range(0, 1200, 100):
        q.publish_many("jobs", [NewMessage(n, priority=n % 5) for n in range(start, start + 100)])
    core = inside(q)
    steps = AllVerbs(core, q.tenant).put_config("jobs", ordering="priority")
    step: Step = next(steps)
    while not isinstance(step, Rerank):
        step = steps.send(core.do(step))
    steps.send(core.do(step))  # one of several; here the process dies
    steps.close()
    house.clock.advance(4)
    house.rank()
    mixed = [m.priority for m in q.messages("jobs", limit=2000)]
    assert mixed != sorted(mixed, reverse=True), "it waits until everybody has noticed"
    house.clock.advance(2)
    house.rank()
    ranked = [(m.priority, m.payload) for m in q.messages("jobs", limit=2000)]
    assert ranked == sorted(ranked, key=lambda pair: (-pair[0], pair[1]))
    with house.unchanged(q):
        house.rank()


def test_what_was_published_before_a_change_was_noticed_is_ranked_too(
    direct_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tampu.broker.settings.time", Stopped)
    one, two = direct_house.open(), direct_house.open()
    two.publish("jobs", "late", deadline=direct_house.clock.time + timedelta(hours=2))
    one.queues.put("jobs", ordering="deadline")
    one.publish("jobs", "soon", deadline=direct_house.clock.time + timedelta(hours=1))
    two.publish("jobs", "by the old order", deadline=direct_house.clock.time + timedelta(hours=3))
    assert next(iter(one.messages("jobs"))).payload == "by the old order"
    direct_house.clock.advance(6)
    direct_house.rank()
    assert payloads(one.claim("jobs", limit=5)) == ["soon", "late", "by the old order"]


class Stopped:
    """A process that looks at nothing anew: its clock stands still."""

    @staticmethod
    def monotonic() -> float:
        return 0.05


def test_a_reset_of_the_ordering_is_finished_too(q: Queue, house: House) -> None:
    q.queues.put("jobs", ordering="priority")
    q.publish_many("jobs", [NewMessage(n, priority=n % 3) for n in range(9)])
    q.queues.reset("jobs")
    assert [m.payload for m in q.messages("jobs")] == list(range(9))
    house.clock.advance(6)
    house.rank()
    assert payloads(q.claim("jobs", limit=9)) == list(range(9))
