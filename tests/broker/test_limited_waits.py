"""Waiting on queues that have messages but may not give them."""

from __future__ import annotations

from typing import Any

import pytest

import tampu
from tampu.broker import access


@pytest.mark.parametrize("limit", [{"status": "paused"}, {"max_in_flight": 1}, {"rate": 0.01, "burst": 1}])
def test_waiting_on_messages_that_may_not_be_claimed_does_not_spin(limit: dict[str, Any]) -> None:
    with tampu.open("memory://") as store:
        store.publish_many("jobs", [1, 2, 3])
        store.queues.put("jobs", **limit)
        store.claim("jobs")
        engine: Any = access.engine(store)
        asked: list[str] = []
        stats, run = engine.stats, engine.run
        engine.stats = lambda *a: asked.append("stats") or stats(*a)  # type: ignore[func-returns-value]
        engine.run = lambda calls: asked.append("run") or run(calls)  # type: ignore[func-returns-value]
        assert store.claim("jobs", wait=0.6) == []
        assert len(asked) < 20


def test_a_claim_that_the_rate_leaves_nothing_writes_nothing(tmp_path: Any) -> None:
    with tampu.open(tmp_path / "jobs.db", maintenance=False) as store:
        store.queues.put("jobs", rate=0.01, burst=1)
        store.publish_many("jobs", [1, 2])
        assert len(store.claim("jobs", limit=2)) == 1
        log = tmp_path / "jobs.db-wal"
        before = log.stat().st_size, log.read_bytes()
        assert store.claim("jobs") == []
        assert (log.stat().st_size, log.read_bytes()) == before
