"""Settlements of threads go beside what is under way, on a connection of their own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import tampu
from tampu import Ack
from tampu.broker import access
from tests.conformance.harness import counts, until


def _busy(store: tampu.Store, pool: ThreadPoolExecutor) -> tuple[Any, Any]:
    """A claim that is under way until the lock is given back."""
    engine: Any = access.engine(store)
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with engine._lock:
            held.set()
            go.wait(60)

    pool.submit(hold)
    assert held.wait(60)
    claim = pool.submit(store.claim, "jobs", limit=5)
    until(lambda: access.core(store).coalescer.busy)
    return claim, go


def test_a_settlement_does_not_wait_for_a_claim_that_is_under_way(store: tampu.Store) -> None:
    store.publish_many("jobs", range(10))
    leases = store.claim("jobs", limit=5)
    with ThreadPoolExecutor(3) as pool:
        claim, go = _busy(store, pool)
        try:
            pool.submit(store.ack, leases[0]).result(60)
            assert {o.state for o in pool.submit(store.settle, [Ack(x) for x in leases[1:]]).result(60)} == {"done"}
            assert not claim.done()
        finally:
            go.set()
        store.settle([Ack(lease) for lease in claim.result(60)])
    assert counts(store, "jobs") == {"done": 10}
    assert access.engine(store).next_due() is None, "the claims were known to both"


def test_one_thing_at_a_time_needs_one_connection(store: tampu.Store) -> None:
    store.publish_many("jobs", range(3))
    for lease in store.claim("jobs", limit=3):
        store.ack(lease)
    engine: Any = access.engine(store)
    assert engine._second is None


def test_without_a_second_connection_settlements_wait(store: tampu.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.publish_many("jobs", range(10))
    leases = store.claim("jobs", limit=5)
    engine: Any = access.engine(store)
    monkeypatch.setattr(type(engine), "open_second", _refused)
    with ThreadPoolExecutor(3) as pool:
        claim, go = _busy(store, pool)
        acked = pool.submit(store.settle, [Ack(x) for x in leases])
        go.set()
        assert {o.state for o in acked.result(60)} == {"done"}
        store.settle([Ack(lease) for lease in claim.result(60)])
    assert counts(store, "jobs") == {"done": 10}


def _refused(_: Any) -> Any:
    raise tampu.TampuError("too many clients already")


def test_the_second_connection_goes_with_the_first(store: tampu.Store) -> None:
    store.publish_many("jobs", range(2))
    leases = store.claim("jobs", limit=1)
    engine: Any = access.engine(store)
    with ThreadPoolExecutor(3) as pool:
        claim, go = _busy(store, pool)
        pool.submit(store.ack, leases[0]).result(60)
        go.set()
        claim.result(60)
    second: psycopg.Connection[Any] = engine._second._db.connection
    assert not second.closed
    store.close()
    assert second.closed
