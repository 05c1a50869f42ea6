"""Long polls are woken by work, wherever it comes from; with the real clock and maintenance running."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tampu import NewMessage
from tampu.broker.store import Store
from tests.conformance.harness import Harness, inside, payloads, until, waits

LONG = 120


@pytest.fixture
def live(harness: Harness) -> Store:
    return harness.live()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def _soon(future: Future[Any]) -> Any:
    """The answer of a long poll, which must not need its whole time."""
    return future.result(timeout=LONG / 2)


def test_wait_is_woken_by_a_publish_of_another_thread(live: Store, pool: ThreadPoolExecutor) -> None:
    waiting = pool.submit(live.claim, "emails", wait=LONG)
    until(lambda: waits(live))
    live.publish("emails", "hello")
    assert payloads(_soon(waiting)) == ["hello"]


def test_wait_on_several_queues_is_woken_by_any(live: Store, pool: ThreadPoolExecutor) -> None:
    waiting = pool.submit(live.claim, ["a", "b", "c"], wait=LONG)
    until(lambda: waits(live))
    live.publish("c", "hello")
    assert payloads(_soon(waiting)) == ["hello"]


def test_wait_is_not_woken_by_another_queue_or_tenant(live: Store, harness: Harness, pool: ThreadPoolExecutor) -> None:
    waiting = pool.submit(live.claim, "emails", wait=LONG)
    until(lambda: waits(live))
    live.publish("letters", 1)
    harness.live(tenant="other").publish("emails", 2)
    assert not waiting.done()
    live.publish("emails", 3)
    assert payloads(_soon(waiting)) == [3]


def test_as_many_wake_as_there_are_messages_and_each_gets_one(live: Store, pool: ThreadPoolExecutor) -> None:
    waiting = [pool.submit(live.claim, "emails", wait=LONG) for _ in range(6)]
    until(lambda: waits(live, 6))
    live.publish_many("emails", range(4))
    until(lambda: sum(w.done() for w in waiting) == 4)
    live.publish_many("emails", [4, 5])
    assert sorted(p for w in waiting for p in payloads(_soon(w))) == list(range(6))


def test_wait_is_woken_when_delayed_work_is_due(live: Store, pool: ThreadPoolExecutor) -> None:
    waiting = pool.submit(live.claim, "emails", wait=LONG)
    until(lambda: waits(live))
    message = live.publish("emails", "later", delay=0.2)
    (lease,) = _soon(waiting)
    assert lease.id == message.id
    assert message.run_us is not None
    assert inside(live).engine.now() >= message.run_us


def test_wait_is_woken_when_a_lease_expires(live: Store) -> None:
    live.publish("emails", 1)
    live.claim("emails", lease=0.2)
    assert [lease.attempt for lease in live.claim("emails", wait=LONG)] == [2]


@pytest.mark.parametrize("way", ["nack", "release", "replay", "free", "resume"])
def test_wait_is_woken_by_work_that_comes_back(live: Store, pool: ThreadPoolExecutor, way: str) -> None:
    message = live.publish("emails", 1, hold="x" if way == "free" else None)
    leases = live.claim("emails")
    if way == "replay":
        live.reject(leases[0])
    elif way == "resume":
        live.release(leases[0])
        live.pause("emails")
    waiting = pool.submit(live.claim, "emails", wait=LONG)
    until(lambda: waits(live))
    {
        "nack": lambda: live.nack(leases[0], delay=0),
        "release": lambda: live.release(leases[0]),
        "replay": lambda: live.replay("emails", ids=[message.id]),
        "free": lambda: live.free(message.id),
        "resume": lambda: live.resume("emails"),
    }[way]()
    assert [lease.id for lease in _soon(waiting)] == [message.id]


def test_wait_is_woken_when_the_turn_of_a_group_comes(live: Store, pool: ThreadPoolExecutor) -> None:
    live.queues.put("jobs", group_order=True)
    live.publish_many("jobs", [NewMessage(n, group="g") for n in range(2)])
    first = live.claim("jobs")[0]
    waiting = pool.submit(live.claim, "jobs", wait=LONG)
    until(lambda: waits(live))
    live.ack(first)
    assert payloads(_soon(waiting)) == [1]


def test_wait_is_woken_when_the_limit_in_flight_has_room(live: Store, pool: ThreadPoolExecutor) -> None:
    live.queues.put("jobs", max_in_flight=1)
    live.publish_many("jobs", range(2))
    first = live.claim("jobs")[0]
    waiting = pool.submit(live.claim, "jobs", wait=LONG)
    until(lambda: waits(live))
    live.ack(first)
    assert payloads(_soon(waiting)) == [1]


def test_wait_for_nothing_ends_empty_after_its_time(live: Store) -> None:
    began = time.monotonic()
    assert live.claim("emails", wait=0.05) == []
    assert time.monotonic() - began >= 0.05


def test_wait_does_not_wait_when_there_is_work(live: Store) -> None:
    live.publish("emails", 1)
    assert len(live.claim("emails", limit=100, wait=LONG)) == 1


def test_closing_wakes_waiting_claims_with_nothing(live: Store, pool: ThreadPoolExecutor) -> None:
    waiting = pool.submit(live.claim, "emails", wait=LONG)
    until(lambda: waits(live))
    live.close()
    assert _soon(waiting) == []


def test_waiting_works_without_maintenance_in_this_process(harness: Harness) -> None:
    store = harness.open(live=True)
    store.publish("emails", "later", delay=0.1)
    assert payloads(store.claim("emails", wait=LONG)) == ["later"]


PUBLISH = (
    "import sys, tampu\n"
    "with tampu.open(sys.argv[1], maintenance=False) as store: store.publish('emails', 'from afar', delay={})"
)


@pytest.mark.parametrize("delay", [None, 0.3])
def test_wait_is_woken_by_another_process(
    shared_harness: Harness, pool: ThreadPoolExecutor, delay: float | None
) -> None:
    live = shared_harness.live()
    waiting = pool.submit(live.claim, "emails", wait=LONG)
    until(lambda: waits(live))
    subprocess.run([sys.executable, "-c", PUBLISH.format(delay), shared_harness.url], check=True, timeout=120)
    assert payloads(_soon(waiting)) == ["from afar"]


def test_many_threads_publish_and_claim_and_nothing_is_lost_or_doubled(live: Store) -> None:
    got: list[int] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            for lease in live.claim("jobs", limit=5, wait=0.2):
                got.append(lease.payload)
                live.ack(lease)

    workers = [threading.Thread(target=work) for _ in range(3)]
    publishers = [
        threading.Thread(target=lambda n=n: [live.publish("jobs", n * 100 + i) for i in range(50)]) for n in range(4)
    ]
    for thread in workers + publishers:
        thread.start()
    for thread in publishers:
        thread.join(60)
    until(lambda: live.stats("jobs").done == 200, 60)
    stop.set()
    for thread in workers:
        thread.join(60)
    assert sorted(got) == sorted(n * 100 + i for n in range(4) for i in range(50))


def test_wait_at_a_full_queue_ends_when_a_lease_does(live: Store, pool: ThreadPoolExecutor) -> None:
    live.queues.put("emails", max_in_flight=1)
    live.publish_many("emails", ["first", "second", "third"])
    first = live.claim("emails", lease=LONG)[0]
    waiting = [pool.submit(live.claim, "emails", lease=LONG, wait=LONG) for _ in range(2)]
    until(lambda: waits(live, 2))
    live.ack(first)
    until(lambda: any(one.done() for one in waiting))
    (second,) = [one for one in waiting if one.done()]
    assert payloads(second.result()) == ["second"]
    live.nack(second.result()[0], delay=LONG)
    for one in waiting:
        assert len(_soon(one)) == 1


def test_wait_at_a_full_queue_ends_when_a_lease_of_another_process_does(
    shared_harness: Harness, pool: ThreadPoolExecutor
) -> None:
    live = shared_harness.live()
    live.queues.put("emails", max_in_flight=1)
    live.publish_many("emails", ["first", "second"])
    (first,) = live.claim("emails", lease=LONG)
    other = shared_harness.live()
    waiting = pool.submit(other.claim, "emails", lease=LONG, wait=LONG)
    until(lambda: waits(other))
    live.ack(first)
    assert payloads(_soon(waiting)) == ["second"]


def test_wait_at_a_used_up_rate_ends_when_the_next_claim_is_allowed(live: Store) -> None:
    live.queues.put("emails", rate=4, burst=1)
    live.publish_many("emails", range(3))
    began = time.monotonic()
    for n in range(3):
        assert payloads(live.claim("emails", wait=LONG)) == [n]
    assert time.monotonic() - began >= 0.45, "a quarter of a second between claims"
