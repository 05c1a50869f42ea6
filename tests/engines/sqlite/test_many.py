"""Many queues, many tenants, large groups: a commit is bounded, whatever there is."""

from __future__ import annotations

from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.engines.port import Extend, Regroup, Trim
from tampu.engines.sqlite import operations
from tampu.maintenance.tasks import Trimmer
from tampu.model.times import SECOND
from tests.conformance.harness import FakeClock


def test_retention_looks_at_a_part_of_the_queues_and_goes_on_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "QUEUES_A_STEP", 4)
    clock = FakeClock()
    with tampu.open("memory://", maintenance=False, clock=clock) as store:
        for n in range(10):
            store.publish(f"q{n}", 1)
            store.ack(store.claim(f"q{n}")[0])
        clock.advance(60)
        trim = Trim({}, SECOND, 10**15, 100)
        assert [access.core(store).coalescer.submit(trim) for _ in range(4)] == [4, 4, 2, 0]
        assert sum(s.done for s in store.stats()) == 0


def test_a_queue_with_much_to_remove_does_not_hold_up_the_next() -> None:
    clock = FakeClock()
    with tampu.open("memory://", maintenance=False, clock=clock) as store:
        for name, count in (("much", 30), ("little", 1)):
            store.publish_many(name, range(count))
            for lease in store.claim(name, limit=count):
                store.ack(lease)
        clock.advance(60)
        removed = [access.core(store).coalescer.submit(Trim({}, SECOND, 10**15, 10)) for _ in range(2)]
        assert removed == [10, 10]
        assert store.stats("little").done == 0


def test_the_retention_of_each_tenant_is_its_own() -> None:
    clock = FakeClock()
    with tampu.open("memory://", maintenance=False, clock=clock) as store:
        core: Any = access.core(store)
        for tenant, retention in (("a", 10), ("b", None), ("c", 1000)):
            other = tampu.Store(core, tenant, on_close=lambda: None)
            if retention is not None:
                other.queues.put("*", retention=retention)
            for name in ("one", "two"):
                other.publish(name, 1)
                other.ack(other.claim(name)[0])
        clock.advance(60)
        assert Trimmer(core, 10**15).step() == 2


def test_who_is_let_go_counts_towards_the_limit_of_a_step() -> None:
    with tampu.open("memory://", maintenance=False) as store:
        store.queues.put("jobs", group_concurrency=1)
        store.publish_many("jobs", [tampu.NewMessage(n, group=f"g{n % 10}") for n in range(100)])
        submit = access.core(store).coalescer.submit
        after, steps = "", []
        while after is not None:
            before = store.stats("jobs").ready
            after = submit(Regroup("default", "jobs", 50, after=after, limit=20))
            steps.append(store.stats("jobs").ready - before)
        assert sum(steps) == 90
        assert max(steps) <= 27


def test_an_ack_does_not_count_a_group_in_which_nobody_waits() -> None:
    with tampu.open("memory://", maintenance=False) as store:
        store.queues.put("jobs", group_concurrency=10)
        store.publish_many("jobs", [tampu.NewMessage(n, group="a") for n in range(5)])
        leases = store.claim("jobs", limit=5)
        engine: Any = access.engine(store)
        asked: list[str] = []
        engine._db.connection.set_trace_callback(asked.append)
        store.ack(leases[0])
        assert not any("count(*)" in sql for sql in asked)
        assert store.stats("jobs").done == 1


def test_many_leases_made_shorter_at_once_are_one_row_of_the_reaper() -> None:
    clock = FakeClock()
    with tampu.open("memory://", maintenance=False, clock=clock) as store:
        store.publish_many("jobs", range(50))
        leases = store.claim("jobs", limit=50, lease=3600)
        engine: Any = access.engine(store)
        written: list[str] = []
        engine._db.connection.set_trace_callback(lambda sql: written.append(sql) if "INTO tampu_claim" in sql else None)
        engine.run([Extend("default", [("jobs", lease.receipt, 10 * SECOND)]) for lease in leases])
        assert len(written) == 1
        clock.advance(11)
        assert len(store.claim("jobs", limit=100)) == 50


def test_the_places_of_a_group_are_read_once_in_a_commit() -> None:
    with tampu.open("memory://", maintenance=False) as store:
        store.queues.put("jobs", group_concurrency=30)
        engine: Any = access.engine(store)
        counted: list[str] = []
        engine._db.connection.set_trace_callback(
            lambda sql: counted.append(sql) if "JOIN tampu_lane l" in sql else None
        )
        store.publish_many("jobs", [tampu.NewMessage(n, group="a") for n in range(50)])
        assert len(counted) == 1
        assert (store.stats("jobs").ready, store.stats("jobs").held) == (30, 20)
