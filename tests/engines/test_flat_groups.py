"""What a message costs does not grow with the groups there are: counted, not timed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu import Ack, NewMessage
from tampu.broker import access
from tests.servers import redis

FEW, MANY = 10, 10_000


RATES: list[dict[str, Any]] = [{}, {"group_rate": 10_000, "group_burst": 50}]


def _filled(url: str | Path, groups: int, **settings: Any) -> tampu.Store:
    """A fair queue with limits, where each group has messages that wait for a place."""
    store = tampu.open(url, maintenance=False)
    store.queues.put("jobs", ordering="fair", group_concurrency=1, **settings)
    for _ in range(2):
        store.publish_many("jobs", [NewMessage(n, group=f"g{n}") for n in range(groups)])
    return store


def _one_of_each(store: tampu.Store) -> None:
    """What a message goes through, with a place that is given on."""
    store.publish("jobs", 1, group="g3")
    (lease,) = store.claim("jobs")
    store.nack(lease, delay=0)
    (lease,) = store.claim("jobs")
    store.ack(lease)
    store.publish("jobs", 1, group="a new one")


def _cost(store: tampu.Store, count: Callable[[], int]) -> int:
    _one_of_each(store)  # what is read once is read
    before = count()
    _one_of_each(store)
    return count() - before


@pytest.mark.parametrize("group_rate", RATES)
def test_the_embedded_engine_takes_as_many_steps_with_many_groups_as_with_few(
    tmp_path: Path, group_rate: dict[str, Any]
) -> None:
    costs = []
    for groups in (FEW, MANY):
        with _filled(tmp_path / f"{groups}.db", groups, **group_rate) as store:
            engine: Any = access.engine(store)
            steps = itertools.count()
            engine._db.connection.set_progress_handler(lambda steps=steps: next(steps) < 0, 1)
            costs.append(_cost(store, lambda steps=steps: next(steps)))  # type: ignore[misc]  # bound now
    assert costs[1] <= 1.3 * costs[0], costs


@pytest.mark.parametrize("group_rate", RATES)
def test_redis_carries_out_as_many_commands_with_many_groups_as_with_few(group_rate: dict[str, Any]) -> None:
    server = redis.redis.server.client()

    def commands() -> int:
        stats: dict[str, Any] = server.info("commandstats")
        return sum(stat["calls"] for name, stat in stats.items() if name.startswith("cmdstat_") and "info" not in name)

    costs = []
    for groups in (FEW, MANY):
        with _filled(redis.redis.url(), groups, **group_rate) as store:
            costs.append(_cost(store, commands))
    assert costs[1] <= 1.3 * costs[0], costs


def test_groups_that_the_queue_has_passed_are_forgotten(tmp_path: Path) -> None:
    with _filled(tmp_path / "jobs.db", 500) as store:
        engine: Any = access.engine(store)
        while leases := store.claim("jobs", limit=1000):
            store.settle([Ack(lease) for lease in leases])
        for n in range(300):
            store.publish("jobs", n, group="g1")
            store.ack(store.claim("jobs")[0])
        (kept,) = engine._db.execute("SELECT count(*) FROM tampu_fair").fetchone()
        assert kept <= 2


@pytest.mark.parametrize("settings", [{"group_concurrency": 1}, {"ordering": "fair"}])
def test_many_groups_at_once_are_stored_and_delivered(tmp_path: Path, settings: dict[str, Any]) -> None:
    with tampu.open(tmp_path / "jobs.db", maintenance=False) as store:
        store.queues.put("jobs", **settings)
        store.publish_many("jobs", [NewMessage(n, group=f"g{n % 5000}") for n in range(MANY)])
        done = 0
        while leases := store.claim("jobs", limit=MANY):
            done += len(store.settle([Ack(lease) for lease in leases]))
        assert done == MANY
