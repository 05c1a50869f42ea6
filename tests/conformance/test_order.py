"""Order: fifo, priority with ageing, deadline; and what happens when a queue with a backlog changes it."""

import random
from datetime import timedelta

import pytest

from tampu import NewMessage
from tampu.broker.core import Step
from tampu.broker.store import AllVerbs, Store
from tampu.engines.port import Rerank
from tests.conformance.harness import Harness, inside, payloads


def _drain(store: Store, step: int = 7) -> list[object]:
    found: list[object] = []
    while leases := store.claim("jobs", limit=step):
        found += payloads(leases)
    return found


def test_fifo_is_publish_order(store: Store, harness: Harness) -> None:
    for n in range(10):
        store.publish("jobs", 2 * n, priority=n)
        store.publish_many("jobs", [2 * n + 1])
        if n % 3 == 0:
            harness.clock.advance(0.5)
    assert _drain(store) == list(range(20))


def test_a_priority_without_effect_is_logged_once_for_each_queue(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.queues.put("urgent", ordering="priority")
    store.queues.put("timely", ordering="deadline")
    with caplog.at_level("WARNING", logger="tampu"):
        store.publish("urgent", 1, priority=5)
        store.publish("jobs", 1, priority=0, labels={"a": "b"})
        assert "priority" not in caplog.text
        for _ in range(2):
            store.publish("jobs", 1, priority=5)
            store.publish_many("timely", [1, NewMessage(2, priority=-1)])
    logged = [record.getMessage() for record in caplog.records if "priority" in record.getMessage()]
    assert [line.partition(";")[0] for line in logged] == [
        "priority has no effect in queue jobs: its ordering is fifo",
        "priority has no effect in queue timely: its ordering is deadline",
    ]


def test_priority_is_higher_first_then_publish_order(store: Store, seed: int) -> None:
    dice = random.Random(seed)
    store.queues.put("jobs", ordering="priority")
    given = [(dice.randint(-5, 5), n) for n in range(60)]
    for start in range(0, 60, 6):
        store.publish_many("jobs", [NewMessage([p, n], priority=p) for p, n in given[start : start + 6]])
    assert _drain(store) == [[p, n] for p, n in sorted(given, key=lambda item: (-item[0], item[1]))]


def test_extreme_priorities_are_still_ordered(store: Store) -> None:
    store.queues.put("jobs", ordering="priority")
    for priority in (0, -1_000_000_000, 1_000_000_000, 1):
        store.publish("jobs", priority, priority=priority)
    assert _drain(store) == [1_000_000_000, 1, 0, -1_000_000_000]


def test_ageing_lets_old_low_priority_overtake_newer_high_priority(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", ordering="priority", ageing=60)
    store.publish("jobs", "low, old", priority=0)
    harness.clock.advance(5 * 60 + 1)
    store.publish("jobs", "five steps, new", priority=5)
    store.publish("jobs", "six steps, new", priority=6)
    assert _drain(store) == ["six steps, new", "low, old", "five steps, new"]


def test_ageing_before_its_time_keeps_priority_first(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", ordering="priority", ageing=60)
    store.publish("jobs", "low", priority=0)
    harness.clock.advance(59)
    store.publish("jobs", "high", priority=1)
    assert _drain(store) == ["high", "low"]


def test_without_ageing_priority_never_yields(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", ordering="priority")
    store.publish("jobs", "low", priority=0)
    harness.clock.advance(365 * 86_400)
    store.publish("jobs", "high", priority=1)
    assert _drain(store) == ["high", "low"]


def test_extreme_priority_with_long_ageing_is_accepted_and_ordered(store: Store) -> None:
    store.queues.put("jobs", ordering="priority", ageing=timedelta(days=36_500))
    for priority in (-1_000_000_000, 0, 1_000_000_000):
        store.publish("jobs", priority, priority=priority)
    assert _drain(store) == [1_000_000_000, 0, -1_000_000_000]


def test_deadline_is_earliest_first_and_none_last(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", ordering="deadline")
    now = harness.clock.time
    store.publish("jobs", "none 1")
    store.publish("jobs", "later", deadline=now + timedelta(days=2))
    store.publish("jobs", "soon", deadline=now + timedelta(seconds=1))
    store.publish("jobs", "none 2")
    store.publish("jobs", "passed", deadline=now - timedelta(days=1))
    store.publish("jobs", "soon too", deadline=now + timedelta(seconds=1))
    assert _drain(store) == ["passed", "soon", "soon too", "later", "none 1", "none 2"]


def test_a_deadline_that_passed_does_not_end_the_message(store: Store, harness: Harness) -> None:
    message = store.publish("jobs", 1, deadline=harness.clock.time + timedelta(seconds=1))
    harness.clock.advance(3600)
    harness.sweep()
    assert store.claim("jobs")[0].id == message.id


def test_delayed_work_comes_to_the_back_of_its_rank(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", ordering="priority")
    store.publish("jobs", "delayed high", priority=1, delay=10)
    store.publish("jobs", "high", priority=1)
    store.publish("jobs", "low")
    harness.clock.advance(10)
    assert _drain(store) == ["high", "delayed high", "low"]


def test_delayed_work_becomes_ready_in_the_order_it_is_due(store: Store, harness: Harness) -> None:
    for n, delay in enumerate([30, 10, 20, 10]):
        store.publish("jobs", n, delay=delay)
    harness.clock.advance(60)
    assert _drain(store) == [1, 3, 2, 0]


def test_retried_work_keeps_its_priority(store: Store) -> None:
    store.queues.put("jobs", ordering="priority")
    store.publish("jobs", "high", priority=9)
    store.publish("jobs", "low")
    store.nack(store.claim("jobs")[0], delay=0)
    assert _drain(store) == ["high", "low"]


@pytest.mark.parametrize("back", ["reset", "inherit"])
def test_changing_the_ordering_ranks_the_backlog_again(store: Store, harness: Harness, back: str) -> None:
    now = harness.clock.time
    for n, (priority, hours) in enumerate([(1, 3), (3, 2), (2, 1)]):
        store.publish("jobs", n, priority=priority, deadline=now + timedelta(hours=hours))
    store.queues.put("jobs", ordering="priority")
    assert [m.payload for m in store.messages("jobs")] == [1, 2, 0]
    store.queues.put("jobs", ordering="deadline")
    assert [m.payload for m in store.messages("jobs")] == [2, 1, 0]
    if back == "reset":
        store.queues.reset("jobs")
    else:
        store.queues.put("jobs", ordering=None)
    assert _drain(store) == [0, 1, 2]


def test_a_new_ordering_reaches_all_of_a_large_backlog(store: Store) -> None:
    """More than one step of re-ranking, with messages in every waiting state."""
    given = [NewMessage(n, priority=n % 7) for n in range(1300)]
    store.publish_many("jobs", given)
    store.queues.put("jobs", ordering="priority")
    assert _drain(store, 1000) == sorted(range(1300), key=lambda n: (-(n % 7), n))


def test_a_new_ordering_counts_for_messages_that_come_back_later(store: Store, harness: Harness) -> None:
    for n in range(4):
        store.publish("jobs", n, priority=n, delay=10)
    store.publish("jobs", "leased", priority=99)
    lease = store.claim("jobs")[0]
    store.publish("jobs", "held", priority=50, hold="later")
    store.queues.put("jobs", ordering="priority")
    harness.clock.advance(10)
    store.nack(lease, delay=0)
    store.free(store.messages("jobs", state="held").messages[0].id)
    assert _drain(store) == ["leased", "held", 3, 2, 1, 0]


def test_the_default_ordering_counts_for_every_queue(store: Store) -> None:
    for name in ("jobs", "other"):
        store.publish(name, "low", priority=0)
        store.publish(name, "high", priority=1)
    store.queues.put("other", ordering="fifo")
    store.queues.put("*", ordering="priority")
    assert payloads(store.claim("jobs", limit=2)) == ["high", "low"]
    assert payloads(store.claim("other", limit=2)) == ["low", "high"]


def test_a_new_ordering_counts_for_replayed_dead_letters(store: Store) -> None:
    store.queues.put("jobs", ordering="deadline")
    store.publish("jobs", "dead")
    store.reject(store.claim("jobs")[0])
    store.queues.put("jobs", ordering="fifo")
    store.replay("jobs", where={})
    store.publish("jobs", "new")
    assert payloads(store.claim("jobs", limit=2)) == ["dead", "new"]


def test_a_batch_cut_by_cancels_claims_and_releases_keeps_its_order(store: Store) -> None:
    made = store.publish_many("jobs", list(range(30)))
    store.cancel(made[0].id, made[7].id, made[8].id, made[29].id)
    first = store.claim("jobs", limit=3)
    assert payloads(first) == [1, 2, 3]
    store.release(first[1])
    assert store.stats("jobs").counts["ready"] == 24
    listed, after = [], None
    while True:
        page = store.messages("jobs", state="ready", limit=4, after=after)
        listed += [message.payload for message in page]
        after = page.cursor
        if after is None:
            break
    expected = [n for n in range(4, 29) if n not in (7, 8)] + [2]
    assert listed == expected
    assert store.get(made[20].id).state == "ready"
    assert store.get(made[8].id).state == "cancelled"
    assert _drain(store) == expected


def test_changing_the_order_half_way_through_a_batch_reaches_every_message(store: Store) -> None:
    store.publish_many("jobs", [NewMessage(n, priority=n % 3) for n in range(20)])
    assert payloads(store.claim("jobs", limit=5)) == [0, 1, 2, 3, 4]
    store.queues.put("jobs", ordering="priority")
    assert _drain(store) == sorted(range(5, 20), key=lambda n: (-(n % 3), n))


def test_many_calls_take_one_batch_apart_without_losing_any(store: Store, seed: int) -> None:
    dice = random.Random(seed)
    made = store.publish_many("jobs", list(range(200)))
    cancelled = {m.payload for m in dice.sample(made, 50)}
    store.cancel(*[m.id for m in made if m.payload in cancelled])
    found: list[object] = []
    while leases := store.claim("jobs", limit=dice.randint(1, 20)):
        found += payloads(leases)
    assert found == [n for n in range(200) if n not in cancelled]


def test_a_change_of_ordering_that_was_cut_short_is_finished_by_maintenance(store: Store, harness: Harness) -> None:
    for start in range(0, 1200, 100):
        store.publish_many("jobs", [NewMessage(n, priority=n % 5) for n in range(start, start + 100)])
    core = inside(store)
    steps = AllVerbs(core, store.tenant).put_config("jobs", ordering="priority")
    step: Step = next(steps)
    while not isinstance(step, Rerank):
        step = steps.send(core.do(step))
    steps.send(core.do(step))  # one of several; here the process dies
    steps.close()
    harness.clock.advance(4)
    harness.rank()
    mixed = [m.priority for m in store.messages("jobs", limit=2000)]
    assert mixed != sorted(mixed, reverse=True), "it waits until everybody has noticed"
    harness.clock.advance(2)
    harness.rank()
    ranked = [(m.priority, m.payload) for m in store.messages("jobs", limit=2000)]
    assert ranked == sorted(ranked, key=lambda pair: (-pair[0], pair[1]))
    with harness.unchanged(store):
        harness.rank()


def test_what_was_published_before_a_change_was_noticed_is_ranked_too(
    direct_harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tampu.broker.settings.time", Stopped)
    one, two = direct_harness.open(), direct_harness.open()
    two.publish("jobs", "late", deadline=direct_harness.clock.time + timedelta(hours=2))
    one.queues.put("jobs", ordering="deadline")
    one.publish("jobs", "soon", deadline=direct_harness.clock.time + timedelta(hours=1))
    two.publish("jobs", "by the old order", deadline=direct_harness.clock.time + timedelta(hours=3))
    assert next(iter(one.messages("jobs"))).payload == "by the old order"
    direct_harness.clock.advance(6)
    direct_harness.rank()
    assert payloads(one.claim("jobs", limit=5)) == ["soon", "late", "by the old order"]


class Stopped:
    """A process that looks at nothing anew: its clock stands still."""

    @staticmethod
    def monotonic() -> float:
        return 0.05


def test_a_reset_of_the_ordering_is_finished_too(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", ordering="priority")
    store.publish_many("jobs", [NewMessage(n, priority=n % 3) for n in range(9)])
    store.queues.reset("jobs")
    assert [m.payload for m in store.messages("jobs")] == list(range(9))
    harness.clock.advance(6)
    harness.rank()
    assert payloads(store.claim("jobs", limit=9)) == list(range(9))
