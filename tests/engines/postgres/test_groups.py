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


def _busy(q: tampu.Store, pool: ThreadPoolExecutor) -> tuple[Any, Any]:
    """A claim that is under way until the lock is given back."""
    engine: Any = access.engine(q)
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with engine._lock:
            held.set()
            go.wait(60)

    pool.submit(hold)
    assert held.wait(60)
    claim = pool.submit(q.claim, "jobs", limit=5)
    until(lambda: access.core(q).coalescer.busy)
    return claim, go


def test_a_settlement_does_not_wait_for_a_claim_that_is_under_way(q: tampu.Store) -> None:
    q.publish_many("jobs", range(10))
    leases = q.claim("jobs", limit=5)
    with ThreadPoolExecutor(3) as pool:
        claim, go = _busy(q, pool)
        try:
            pool.submit(q.ack, leases[0]).result(60)
            assert {o.state for o in pool.submit(q.settle, [Ack(x) for x in leases[1:]]).result(60)} == {"done"}
            assert not claim.done()
        finally:
            go.set()
        q.settle([Ack(lease) for lease in claim.result(60)])
    assert counts(q, "jobs") == {"done": 10}
    assert access.engine(q).next_due() is None, "the claims were known to both"


def test_one_thing_at_a_time_needs_one_connection(q: tampu.Store) -> None:
    q.publish_many("jobs", range(3))
    for lease in q.claim("jobs", limit=3):
        q.ack(lease)
    engine: Any = access.engine(q)
    assert engine._second is None


def test_without_a_second_connection_settlements_wait(q: tampu.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    q.publish_many("jobs", range(10))
    leases = q.claim("jobs", limit=5)
    engine: Any = access.engine(q)
    monkeypatch.setattr(type(engine), "open_second", _refused)
    with ThreadPoolExecutor(3) as pool:
        claim, go = _busy(q, pool)
        acked = pool.submit(q.settle, [Ack(x) for x in leases])
        go.set()
        assert {o.state for o in acked.result(60)} == {"done"}
        q.settle([Ack(lease) for lease in claim.result(60)])
    assert counts(q, "jobs") == {"done": 10}


def _refused(_: Any) -> Any:
    raise tampu.TampuError("too many clients already")


def test_the_second_connection_goes_with_the_first(q: tampu.Store) -> None:
    q.publish_many("jobs", range(2))
    leases = q.claim("jobs", limit=1)
    engine: Any = access.engine(q)
    with ThreadPoolExecutor(3) as pool:
        claim, go = _busy(q, pool)
        pool.submit(q.ack, leases[0]).result(60)
        go.set()
        claim.result(60)
    second: psycopg.Connection[Any] = engine._second._db.connection
    assert not second.closed
    q.close()
    assert second.closed
