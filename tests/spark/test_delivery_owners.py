"""Who owns a consumer: beats, takeover, fencing, and the thread that beats."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu.engines.port import Settle
from tampu.model.errors import Unavailable
from tampu.model.times import SECOND
from tampu.spark.queue.deliveries import Deliveries
from tampu.spark.queue.delivery_log import HEADS, PAGES, Fenced, read_head
from tampu.spark.queue.heartbeat import Heartbeat, surely_ended, this_process
from tampu.stores.open_store import open_store
from tests.spark.delivery_harness import LEASE, FakeClock, Shaky, documents, driver, payloads
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


def test_beats_keep_leases_and_without_them_the_messages_go_back(store, shaky, clock):
    store.publish_many("emails", range(3))
    log = driver(shaky, clock)
    log.latest(0, 10)
    for _ in range(10):
        clock.pass_(LEASE / 2)
        log.beat()
    assert store.claim("emails", limit=10) == []
    clock.pass_(LEASE + 1)
    assert len(store.claim("emails", limit=10)) == 3
    log.latest(3, 10)
    assert log.lost == 3
    assert store.stats("emails").leased == 3


def test_a_second_driver_is_fenced_while_the_first_beats(store, shaky, clock):
    store.publish_many("emails", range(3))
    first, second = driver(shaky, clock), driver(shaky, clock, takeover=20)
    first.latest(0, 10)
    before = clock.now()
    with pytest.raises(Fenced, match="in use by another driver"):
        second.latest(0, 10)
    assert clock.now() - before == 20 * SECOND
    assert first.latest(3, 10) == 3
    assert store.stats("emails").done == 3


def test_a_driver_that_left_makes_room_at_once(store, shaky, clock):
    store.publish("emails", 1)
    first, second = driver(shaky, clock), driver(shaky, clock)
    first.latest(0, 10)
    first.leave()
    assert second.latest(1, 10) == 1
    assert store.stats("emails").done == 1


def test_a_driver_known_to_be_dead_is_not_waited_for(store, shaky, clock):
    store.publish("emails", 1)
    script = "from tampu.spark.queue.heartbeat import this_process; print(this_process())"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    dead = ran.stdout.strip()
    if not dead:
        pytest.skip("this system does not tell")
    first, second = driver(shaky, clock, process=dead), driver(shaky, clock)
    first.latest(0, 10)
    assert second.latest(0, 10) == 1
    assert not surely_ended(this_process())
    assert not surely_ended("another-machine:4/1/2")
    assert not surely_ended("")


def test_takeover_goes_on_with_the_batch_while_its_leases_hold(store, shaky, clock):
    store.publish_many("emails", range(20))
    first, second = driver(shaky, clock), driver(shaky, clock, takeover=LEASE)
    first.latest(0, 10)
    assert second.latest(0, 10) == 10  # waits for the first one's beat to lapse
    assert second.head.epoch == first.head.epoch + 1
    assert payloads(store, second, 0, 10) == list(range(10))
    assert second.latest(10, 10) == 20
    assert second.latest(20, 10) == 20
    assert store.stats("emails").done == 20
    assert all(m.attempts == 1 for m in store.messages("emails", state="done"))


def test_a_driver_that_comes_back_settles_and_leases_nothing(store, shaky, clock):
    store.publish_many("emails", range(20))
    first, second = driver(shaky, clock), driver(shaky, clock, takeover=LEASE)
    first.latest(0, 10)
    second.latest(0, 10)
    before = store.stats("emails")
    for call in (lambda: first.latest(10, 10), first.beat, lambda: first.pieces(0, 10)):
        with pytest.raises(Fenced, match="taken over"):
            call()
    first.leave()
    assert store.stats("emails") == before
    assert second.latest(10, 10) == 20


def test_leases_taken_by_a_driver_that_is_fenced_meanwhile_go_back_uncounted(store, shaky, clock):
    first, second = driver(shaky, clock), driver(shaky, clock, takeover=LEASE)
    first.latest(0, 10)
    second.latest(0, 10)
    store.publish_many("emails", range(5))
    with pytest.raises(Fenced):
        first.latest(0, 10)
    assert store.stats("emails").ready == 5
    assert second.latest(0, 10) == 5
    assert all(m.attempts == 1 for m in store.messages("emails", state="leased"))
    assert documents(store) == {HEADS: 1, PAGES: 1}


def test_what_was_committed_is_settled_by_the_successor(store, shaky, clock):
    store.publish_many("emails", range(5))
    first, second = driver(shaky, clock), driver(shaky, clock, takeover=LEASE)
    first.latest(0, 10)
    shaky.fail = Settle
    with pytest.raises(Unavailable):
        first.latest(5, 10)
    assert second.latest(5, 10) == 5
    assert store.stats("emails").done == 5
    assert second.lost == 0


# -- the thread


def test_the_heartbeat_ends_with_its_driver_and_gives_the_consumer_up(store, shaky, clock):
    log = driver(shaky, clock)
    log.own()
    parents = iter([1, 1])
    left = threading.Event()

    def orphaned() -> None:
        log.leave()
        left.set()

    beat = Heartbeat(log.beat, 0.001, orphaned=orphaned, last=Fenced, parent=lambda: next(parents, 7))
    beat.start()
    assert left.wait(60)
    beat.stop()
    head, _ = read_head(shaky, "default", "emails", "billing")
    assert head is not None
    assert head.owner == ""


def test_the_heartbeat_goes_on_after_an_error_and_ends_when_fenced():
    seen: list[str] = []
    over = threading.Event()

    def beat() -> None:
        seen.append("beat")
        if len(seen) == 3:
            over.set()
            raise Fenced("taken over")
        raise Unavailable("away")

    heartbeat = Heartbeat(beat, 0.001, orphaned=lambda: seen.append("orphaned"), last=Fenced)
    heartbeat.start()
    assert over.wait(60)
    heartbeat.stop()
    assert seen == ["beat"] * 3


STOPPED = """
import sys
from tampu.model.times import SECOND
from tampu.spark.queue.deliveries import Deliveries
from tampu.spark.queue.delivery_log import Fenced
from tampu.stores.open_store import open_store
log = Deliveries(open_store(sys.argv[1]), "default", "emails", "billing", lease_us=2 * SECOND)
print(log.latest(0, 10), flush=True)
for line in sys.stdin:
    try:
        print(log.latest(10, 10), flush=True)
    except Fenced as error:
        print(error.code, flush=True)
"""


def test_a_stopped_process_that_goes_on_is_fenced(url):
    with opened(url) as store:
        store.publish_many("emails", range(20))
        command = [sys.executable, "-c", STOPPED, url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
            assert first.stdin is not None
            assert first.stdout is not None
            assert first.stdout.readline() == "10\n"
            os.kill(first.pid, signal.SIGSTOP)
            try:
                arrow = open_store(url)
                second = Deliveries(
                    arrow, "default", "emails", "billing", lease_us=600 * SECOND, takeover_us=60 * SECOND
                )
                assert second.latest(0, 10) == 10
            finally:
                os.kill(first.pid, signal.SIGCONT)
            before = store.stats("emails").counts
            print(file=first.stdin, flush=True)
            assert first.stdout.readline() == "consumer_fenced\n"
            assert store.stats("emails").counts == before
            assert second.latest(10, 10) == 20
            assert store.stats("emails").done == 10
            arrow.__exit__(None, None, None)
