"""The index in Redis: what it is asked, what happens when it is wrong, away or emptied. The database always decides."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import traceback
import urllib.parse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tampu
from tampu import Ack
from tampu.broker import access
from tampu.engines.mariadb import index as index_module
from tests.conformance.harness import FakeClock, counts, payloads, until, waits
from tests.servers import mariadb
from tests.servers.redis import FAST, Server, redis_binary


class Harness:
    """A store with an index of its own, and what its claims were."""

    def __init__(self, server: Server) -> None:
        self.redis = server
        self.plain = mariadb.databases.url()
        self.url = f"{self.plain}?index={urllib.parse.quote(server.url(), safe='')}"

    def open(self, **options: Any) -> tampu.Store:
        return tampu.open(self.url, **{"maintenance": False, **options})


@pytest.fixture
def harness() -> Iterator[Harness]:
    server = Server(redis_binary(), FAST)
    yield Harness(server.start())
    server.remove()


@pytest.fixture
def store(harness: Harness) -> Iterator[tampu.Store]:
    with harness.open() as opened:
        _whole(opened)
        yield opened


def _index(store: tampu.Store) -> Any:
    engine: Any = access.engine(store)
    return engine.index


def _whole(store: tampu.Store) -> None:
    until(lambda: _index(store).complete)


def _asked(store: tampu.Store) -> list[str]:
    """The names of statements that the writing connection is asked for from now on."""
    names: list[str] = []
    engine: Any = access.engine(store)
    db = engine._db
    ask = db.submit

    def heard(name: str, *values: Any) -> Any:
        names.append(name)
        return ask(name, *values)

    db.submit = heard
    return names


def _known(store: tampu.Store) -> int:
    """Places that Redis has."""
    index = _index(store)
    return sum(index._redis.zcard(key) for key in index._redis.scan_iter(f"{index._base}:[0-9]*"))


LOOK = "tampu.engines.mariadb.index.SCAN_SECONDS"


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No claim looks at the database by itself, however slow the machine is."""
    monkeypatch.setattr(LOOK, math.inf)


@pytest.mark.usefixtures("unhurried")
def test_a_claim_takes_what_the_index_proposes(store: tampu.Store) -> None:
    store.publish_many("jobs", range(30))
    assert _known(store) == 30
    store.claim("jobs", limit=5)
    asked = _asked(store)
    assert payloads(store.claim("jobs", limit=5)) == [5, 6, 7, 8, 9]
    assert "claim_offered" in asked
    assert "claim_ready" not in asked
    assert _known(store) == 20


@pytest.mark.usefixtures("unhurried")
def test_ranks_are_proposed_in_their_order(store: tampu.Store) -> None:
    store.queues.put("ranked", ordering="priority")
    store.publish_many("ranked", [tampu.NewMessage(n, priority=n % 3) for n in range(9)])
    assert payloads(store.claim("ranked")) == [2]
    asked = _asked(store)
    assert payloads(store.claim("ranked", limit=5)) == [5, 8, 1, 4, 7]
    assert "claim_ready" not in asked


@pytest.mark.usefixtures("unhurried")
def test_what_becomes_ready_in_the_claim_itself_is_in_line_with_the_others(harness: Harness) -> None:
    clock = FakeClock()
    with harness.open(clock=clock) as store:
        _whole(store)
        store.queues.put("ranked", ordering="priority")
        store.publish_many("ranked", [tampu.NewMessage(n, priority=1) for n in range(6)])
        assert payloads(store.claim("ranked")) == [0]
        store.publish("ranked", "urgent", priority=9, delay=5)
        clock.advance(5)
        assert payloads(store.claim("ranked", limit=2)) == ["urgent", 1]
        assert _known(store) == 4
        assert payloads(store.claim("ranked", limit=2)) == [2, 3]


@pytest.mark.usefixtures("unhurried")
def test_what_is_not_there_any_more_is_dropped_and_others_follow(harness: Harness, store: tampu.Store) -> None:
    engine: Any = access.engine(store)
    store.publish_many("jobs", range(20))
    store.claim("jobs")
    for n in range(1, 6):  # places that only Redis has, in front of all
        _index(store).update([(engine.registry.numbers["default", "jobs"], -n, n)], [], notify=False)
    assert payloads(store.claim("jobs", limit=8)) == list(range(1, 9))
    assert _known(store) == 11


def test_everything_that_becomes_ready_is_known_and_what_is_not_ready_is_not(store: tampu.Store) -> None:
    ids = [m.id for m in store.publish_many("jobs", range(10))]
    store.cancel(*ids[:3])
    assert _known(store) == 7
    lease, other = store.claim("jobs", limit=2)
    store.release(lease)
    store.nack(other, delay=0)
    assert _known(store) == 7
    store.purge("jobs", state="ready")
    assert _known(store) == 0


def test_a_commit_that_fails_gives_back_what_it_was_offered(store: tampu.Store, monkeypatch: Any) -> None:
    store.publish_many("jobs", range(10))
    store.claim("jobs")
    engine: Any = access.engine(store)
    ask = engine._db.submit

    def broken(name: str, *values: Any) -> Any:
        if name == "insert_leases":
            raise ZeroDivisionError
        return ask(name, *values)

    with monkeypatch.context() as patched:
        patched.setattr(engine._db, "submit", broken)
        with pytest.raises(ZeroDivisionError):
            store.claim("jobs", limit=3)
    assert _known(store) == 9
    assert payloads(store.claim("jobs", limit=3)) == [1, 2, 3]


def test_when_redis_is_away_the_database_serves_and_the_index_is_repaired_afterwards(
    harness: Harness, store: tampu.Store
) -> None:
    store.publish_many("jobs", range(10))
    harness.redis.kill()
    store.publish_many("jobs", range(10, 20))
    leases = store.claim("jobs", limit=15)
    assert payloads(leases) == list(range(15))
    store.settle([Ack(lease) for lease in leases])
    assert ("index", "warn") in [finding[:2] for finding in store.check()]
    harness.redis.start()
    _whole(store)
    assert _known(store) == 5
    assert payloads(store.claim("jobs", limit=9)) == [15, 16, 17, 18, 19]


def test_an_emptied_redis_is_noticed_by_the_next_claim(harness: Harness, store: tampu.Store) -> None:
    store.publish_many("jobs", range(10))
    store.claim("jobs")
    with harness.redis.client() as client:
        client.flushall()
    store.publish_many("jobs", range(10, 20))
    assert payloads(store.claim("jobs", limit=5)) == [1, 2, 3, 4, 5]
    until(lambda: _known(store) == 14)
    _whole(store)
    assert payloads(store.claim("jobs", limit=14)) == list(range(6, 20))


def test_a_redis_that_comes_back_with_older_data_is_not_believed(harness: Harness, store: tampu.Store) -> None:
    store.publish_many("jobs", range(5))
    with harness.redis.client() as client:
        client.save()
    store.publish_many("jobs", range(5, 10))
    leases = store.claim("jobs", limit=3)
    store.settle([Ack(lease) for lease in leases])
    harness.redis.kill()
    harness.redis.start()
    _whole(store)
    assert payloads(store.claim("jobs", limit=7)) == list(range(3, 10))


def test_older_data_is_not_believed_either_while_another_process_repairs_it(
    harness: Harness, store: tampu.Store
) -> None:
    store.publish("jobs", 0)
    index = _index(store)
    with harness.redis.client() as client:
        client.save()
    harness.redis.kill()
    harness.redis.start()
    with harness.redis.client() as client:
        client.set(f"{index._base}:making", "another process")
        until(lambda: index.up and index._run == client.info("server")["run_id"].encode())
        _looks_again(store)
        assert not index.complete
        client.delete(f"{index._base}:making")  # it has died
    _whole(store)


def _looks_again(store: tampu.Store) -> None:
    """Wait until the index has been looked at from beginning to end."""
    index = _index(store)
    looked, check = threading.Semaphore(0), index.check

    def check_and_count(repair: Any) -> None:
        check(repair)
        looked.release()

    index.check = check_and_count
    for _ in range(2):
        assert looked.acquire(timeout=60)
    index.check = check


def test_a_redis_that_may_forget_is_not_used_and_named(harness: Harness) -> None:
    with harness.redis.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    with harness.open() as store:
        store.publish_many("jobs", range(5))
        assert payloads(store.claim("jobs", limit=5)) == list(range(5))
        assert ("index", "bad") in [finding[:2] for finding in store.check()]


def test_a_redis_that_is_stopped_does_not_hold_anybody_up_for_long(harness: Harness, store: tampu.Store) -> None:
    store.publish_many("jobs", range(10))
    store.claim("jobs")
    os.kill(harness.redis.pid, signal.SIGSTOP)
    try:
        assert payloads(store.claim("jobs", limit=3)) == [1, 2, 3]
        store.publish("jobs", 10)
        assert payloads(store.claim("jobs", limit=3)) == [4, 5, 6]
    finally:
        os.kill(harness.redis.pid, signal.SIGCONT)
    _whole(store)
    assert payloads(store.claim("jobs", limit=9)) == [7, 8, 9, 10]


def test_a_redis_that_was_never_there_can_come_later(harness: Harness) -> None:
    harness.redis.kill()
    with harness.open() as store:
        store.publish_many("jobs", range(3))
        assert payloads(store.claim("jobs")) == [0]
        harness.redis.start()
        _whole(store)
        assert _known(store) == 2


def test_what_a_user_s_transaction_publishes_keeps_its_place(harness: Harness, store: tampu.Store) -> None:
    """When the user commits, nobody is there to tell Redis: the database says so, and claims look there."""
    store.publish("jobs", 0)
    store.claim("jobs")
    with mariadb.databases.server.connect(autocommit=False) as mine, store.transaction(mine) as tx:
        tx.publish("jobs", 1)
    store.publish_many("jobs", range(2, 10))
    assert payloads(store.claim("jobs", limit=3)) == [1, 2, 3]
    _whole(store)
    assert payloads(store.claim("jobs", limit=6)) == list(range(4, 10))


def test_a_process_that_does_not_name_the_index_says_that_it_lacks_something(
    harness: Harness, store: tampu.Store
) -> None:
    store.publish("jobs", 0)
    store.claim("jobs")
    with tampu.open(harness.plain, maintenance=False) as other:
        other.publish("jobs", 1)
    store.publish_many("jobs", range(2, 10))
    assert payloads(store.claim("jobs", limit=3)) == [1, 2, 3]


def test_a_process_that_died_before_it_informed_redis_strands_nothing(
    harness: Harness, store: tampu.Store, monkeypatch: Any
) -> None:
    """Its commit is done and Redis does not know: claims that walk the database's index find it."""
    monkeypatch.setattr(LOOK, 0.0)
    with harness.open() as dying, monkeypatch.context() as patched:
        _whole(dying)
        patched.setattr(_index(dying), "update", lambda *_, **__: True)
        dying.publish("jobs", "nobody knows")
        store.publish_many("jobs", range(5))
        assert payloads(store.claim("jobs", limit=2)) == ["nobody knows", 0]


@pytest.mark.parametrize(
    "step", ["offer", "claim_offered", "insert_leases", "COMMIT", "update"], ids=lambda step: f"killed at {step}"
)
def test_a_claim_that_is_killed_at_any_step_strands_nothing(
    harness: Harness, store: tampu.Store, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish_many("jobs", range(10))
    store.claim("jobs")
    with monkeypatch.context() as patched:
        patched.setattr(LOOK, math.inf)  # the child's claim must go by the index, however slow the machine is

        def work(dying: tampu.Store) -> Callable[[], Any]:
            dying.claim("nothing")
            return lambda: dying.claim("jobs", limit=3)

        _in_a_child_that_dies(harness, step, work)
    expected = list(range(1, 10))
    if step == "update":  # after the commit: the dead process has them
        expected = expected[3:]
    got: list[Any] = []

    def drained() -> bool:
        leases = store.claim("jobs", limit=2)
        got.extend(payloads(leases))
        return len(got) >= len(expected)

    until(drained)
    assert sorted(got) == expected
    assert counts(store, "jobs")["leased"] == 10


@pytest.mark.parametrize("step", ["publish_simple", "COMMIT", "update"], ids=lambda step: f"killed at {step}")
def test_a_publish_that_is_killed_at_any_step_strands_nothing(harness: Harness, store: tampu.Store, step: str) -> None:
    store.publish_many("jobs", range(3))
    store.claim("jobs")
    _in_a_child_that_dies(harness, step, lambda store: lambda: store.publish_many("jobs", range(3, 6)))
    expected = list(range(1, 6 if step == "update" else 3))  # after the commit they are there
    got: list[Any] = []

    def all_came() -> bool:
        got.extend(payloads(store.claim("jobs")))
        return len(got) >= len(expected)

    until(all_came)
    assert got == expected
    assert store.claim("jobs") == []


@pytest.mark.parametrize("step", ["take_leases", "COMMIT", "update"], ids=lambda step: f"killed at {step}")
def test_a_nack_that_is_killed_at_any_step_strands_nothing(harness: Harness, store: tampu.Store, step: str) -> None:
    store.publish_many("jobs", range(3))

    def work(dying: tampu.Store) -> Callable[[], Any]:
        (lease,) = dying.claim("jobs", lease=600)
        return lambda: dying.nack(lease, delay=0)

    _in_a_child_that_dies(harness, step, work)
    expected = [(1, 1), (2, 1)]
    if step == "update":  # it is committed: the message is there again
        expected.append((0, 2))
    got: list[tuple[Any, int]] = []

    def all_came() -> bool:
        got.extend((lease.payload, lease.attempt) for lease in store.claim("jobs"))
        return len(got) >= len(expected)

    until(all_came)
    assert sorted(got) == sorted(expected)
    assert counts(store, "jobs") == {"leased": 3}


def _in_a_child_that_dies(harness: Harness, step: str, work: Callable[[tampu.Store], Callable[[], Any]]) -> None:
    """A process of its own prepares to work with the store, begins, and is killed when it comes to ``step``."""
    pid = os.fork()
    if pid == 0:
        try:
            store = harness.open()
            _whole(store)
            call = work(store)
            _whole(store)
            _die_at(store, step)
            call()
            print(f"it never came to {step}; the index is {_index(store).health()}", file=sys.stderr, flush=True)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def _die_at(store: tampu.Store, step: str) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    engine: Any = access.engine(store)
    index, db = engine.index, engine._db
    if step in ("offer", "update"):
        real = getattr(index, step)

        def then_die(*values: Any, **options: Any) -> Any:
            if step == "offer":
                real(*values, **options)
            die()

        setattr(index, step, then_die)
    elif step == "COMMIT":
        say = db.command
        db.command = lambda sql: die() if sql == b"COMMIT" else say(sql)
    else:
        ask = db.submit

        def heard(name: str, *values: Any) -> Any:
            answer = ask(name, *values)
            if name == step:
                answer.get()
                die()
            return answer

        db.submit = heard


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("moment", ["offer", "update"])
def test_a_redis_that_dies_within_a_call_changes_nothing(harness: Harness, store: tampu.Store, moment: str) -> None:
    """After it has given places away, which nobody tells it of any more; and before it hears of a commit."""
    store.publish_many("jobs", range(10))
    store.claim("jobs")
    index = _index(store)
    real = getattr(index, moment)

    def dying(*values: Any, **options: Any) -> Any:
        setattr(index, moment, real)
        if moment == "update":
            harness.redis.kill()
        answer = real(*values, **options)
        if moment == "offer":
            assert answer, "it was asked"
            harness.redis.kill()
        return answer

    setattr(index, moment, dying)
    leases = store.claim("jobs", limit=3)
    assert payloads(leases) == [1, 2, 3]
    assert not index.up
    store.publish_many("jobs", [10, 11])
    store.nack(leases[0], delay=0)
    assert payloads(store.claim("jobs", limit=4)) == [4, 5, 6, 7]
    harness.redis.start()
    _whole(store)
    assert _known(store) == 5
    assert payloads(store.claim("jobs", limit=9)) == [8, 9, 10, 11, 1]


def test_waiting_claims_of_other_processes_are_rung_through_redis(harness: Harness, store: tampu.Store) -> None:
    with harness.open(maintenance=True) as waiter, ThreadPoolExecutor(1) as pool:
        _whole(waiter)
        heard = threading.Event()
        index = _index(waiter)
        notify = index._on_remote_change

        def listen() -> Any:
            heard.set()
            return notify()

        index._on_remote_change = listen
        waiting = pool.submit(waiter.claim, "jobs", wait=240)
        until(lambda: waits(waiter))
        until(lambda: _listeners(index) == 2)  # the one that publishes listens too
        store.publish("jobs", "hello")
        assert payloads(waiting.result(60)) == ["hello"]
        assert heard.wait(60)


def test_a_store_is_closed_without_waiting_for_its_listener_to_look_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "SECONDS", 1200)
    store = harness.open()
    until(lambda: _listeners(_index(store)) == 1)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(store.close).result(120)


def _listeners(index: Any) -> int:
    ((_, count),) = index._redis.pubsub_numsub(f"{index._base}:bell")
    return int(count)
