"""What a batch says about its messages, and that nothing happens before it is committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu.model.times import SECOND
from tampu.spark.queue.delivery_log import HEADS, Fenced
from tampu.spark.queue.outcomes import OUTCOMES
from tampu.spark.queue.settle import Settled, write_down
from tests.spark.delivery_harness import LEASE, FakeClock, Shaky, documents, driver, rows
from tests.spark.engines import opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(url: str, clock: FakeClock) -> Iterator[tampu.Store]:
    with opened(url, clock) as queue:
        yield queue


@pytest.fixture
def shaky(store: tampu.Store) -> Any:
    return Shaky(store)


@pytest.mark.parametrize("name", ["receipt", "delivery"])
def test_a_row_that_is_of_no_delivery_is_refused(store, shaky, clock, name):
    store.publish("emails", 1)
    log = driver(shaky, clock)
    log.latest(0, 10)
    (row,) = rows(log, 0, 1)
    with pytest.raises(tampu.InvalidMessage, match="no delivery or receipt"):
        write_down(shaky, "default", "emails", "billing", [row, row | {name: None}])


def test_nothing_is_settled_before_the_batch_is_committed(store, shaky, clock):
    store.queues.put("emails", max_attempts=2, backoff=tampu.fixed(10, jitter="none"))
    store.publish_many("emails", range(4))
    log = driver(shaky, clock)
    log.latest(0, 10)
    ok, failed, broken, gone = rows(log, 0, 4)
    said = [ok | {"result": {"n": 1}}, failed | {"error": "smtp: 451"}, broken | {"reject": "decode_failed"}]
    settled = write_down(shaky, "default", "emails", "billing", [*said, gone | {"receipt": "emails/0.0"}])
    assert settled == Settled(acked=1, nacked=1, rejected=1, unknown=1)
    assert store.stats("emails").leased == 4
    log.latest(4, 10)
    states = store.stats("emails")
    assert (states.done, states.delayed, states.dead) == (2, 1, 1)
    assert next(iter(store.messages("emails", state="dead"))).reason == "decode_failed"
    assert next(m for m in store.messages("emails", state="done") if m.payload == 0).attempts == 1
    clock.pass_(10)
    assert log.latest(4, 10) == 5
    write_down(shaky, "default", "emails", "billing", rows(log, 4, 5, error="smtp: 550"))
    log.latest(5, 10)
    dead = {m.payload: store.get(m.id) for m in store.messages("emails", state="dead")}
    assert dead[1].reason == "retries_exhausted"
    assert [failure.error for failure in dead[1].failures] == ["smtp: 451", "smtp: 550"]
    assert documents(store) == {HEADS: 1}


def test_results_are_kept_and_delays_are_those_given(store, shaky, clock):
    store.publish_many("emails", range(2))
    log = driver(shaky, clock)
    log.latest(0, 10)
    one, two = rows(log, 0, 2)
    write_down(shaky, "default", "emails", "billing", [one | {"result": [1]}, two | {"error": "later", "delay": 90}])
    log.latest(2, 10)
    assert store.get(next(iter(store.messages("emails", state="done"))).id).result == [1]
    assert next(iter(store.messages("emails", state="delayed"))).run_us == clock.now() + 90 * SECOND


def test_several_calls_in_a_batch_add_up_and_the_last_word_counts(store, shaky, clock):
    store.publish_many("emails", range(3))
    log = driver(shaky, clock)
    log.latest(0, 10)
    a, b, c = rows(log, 0, 3)
    write_down(shaky, "default", "emails", "billing", [a | {"error": "x"}, b | {"error": "x"}])
    write_down(shaky, "default", "emails", "billing", [a, c | {"reject": "bad"}])
    log.latest(3, 10)
    states = store.stats("emails")
    assert (states.done, states.delayed, states.dead) == (1, 1, 1)


def test_a_batch_that_is_run_again_forgets_what_was_said_before(store, shaky, clock):
    store.publish_many("emails", range(3))
    first, second = driver(shaky, clock), driver(shaky, clock)
    first.latest(0, 10)
    write_down(shaky, "default", "emails", "billing", rows(first, 0, 3, error="the first try"))
    first.leave()
    second.pieces(0, 3)
    second.latest(3, 10)
    assert store.stats("emails").done == 3


def test_what_a_committed_batch_said_holds_for_the_successor(store, shaky, clock):
    store.publish("emails", 1)
    first, second = driver(shaky, clock), driver(shaky, clock)
    first.latest(0, 10)
    write_down(shaky, "default", "emails", "billing", rows(first, 0, 1, reject="no"))
    first.leave()
    second.latest(1, 10)
    assert store.stats("emails").dead == 1


def test_of_two_rows_about_one_message_the_worse_counts(store, shaky, clock):
    store.publish("emails", 1)
    log = driver(shaky, clock)
    log.latest(0, 10)
    (row,) = rows(log, 0, 1)
    settled = write_down(shaky, "default", "emails", "billing", [row | {"error": "x"}, row])
    assert settled == Settled(acked=0, nacked=1, rejected=0, unknown=0)


def taken_over(store, shaky, clock):
    """A driver in the middle of a batch, and the one that took the batch over from it."""
    store.publish_many("emails", range(3))
    first, second = driver(shaky, clock), driver(shaky, clock, takeover=LEASE)
    first.latest(0, 10)
    return first, second


def test_a_driver_that_was_fenced_inside_its_batch_can_say_nothing(store, shaky, clock):
    first, second = taken_over(store, shaky, clock)
    old = rows(first, 0, 3, error="of the first")
    second.latest(0, 10)
    write_down(shaky, "default", "emails", "billing", rows(second, 0, 3, result="of the second"))
    with pytest.raises(Fenced, match="an earlier owner"):
        write_down(shaky, "default", "emails", "billing", old)
    second.latest(3, 10)
    assert [store.get(m.id).result for m in store.messages("emails", state="done")] == ["of the second"] * 3


@pytest.mark.parametrize("kind", [HEADS, OUTCOMES])
def test_a_driver_that_is_fenced_while_it_says_something_changes_nothing(store, shaky, clock, kind):
    """The other one takes over between two steps of the first."""
    first, second = taken_over(store, shaky, clock)
    old = rows(first, 0, 3, error="of the first")
    shaky.before[kind] = lambda: second.pieces(0, 3)
    with pytest.raises(Fenced, match=r"taken the consumer over"):
        write_down(shaky, "default", "emails", "billing", old)
    second.latest(3, 10)
    assert store.stats("emails").done == 3


def test_what_was_said_before_the_takeover_holds_if_the_batch_was_committed(store, shaky, clock):
    first, second = taken_over(store, shaky, clock)
    write_down(shaky, "default", "emails", "billing", rows(first, 0, 3, reject="no"))
    second.latest(3, 10)
    assert store.stats("emails").dead == 3
    assert documents(store) == {HEADS: 1}
