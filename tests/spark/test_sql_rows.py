"""What one answer of a SQL database holds at most, when messages of very different sizes are read. No Spark here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.stores.port import MessageQuery
from tampu.stores.sql import rows as sql_rows
from tests.spark.engines import URLS, store_for

ROOM = 4 << 20
LARGE = 200_000


@pytest.fixture(params=["file", "postgres", "mariadb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tampu.Store]:
    with tampu.open(URLS[request.param](tmp_path), maintenance=False) as queue:
        yield queue


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of bodies and results that each answer brings."""
    sizes: list[int] = []
    look_up, beside = sql_rows.look_up, sql_rows._Beside.__init__

    def looking_up(*args: Any, **named: Any) -> Any:
        found = look_up(*args, **named)
        sizes.append(found.bodies.nbytes + sum(len(result or b"") for result in found.results or ()))  # type: ignore[union-attr]  # as they are packed
        return found

    def looking_beside(self: Any, *args: Any) -> None:
        beside(self, *args)
        sizes.append(sum(len(result) for result in self._results.values()))

    monkeypatch.setattr(sql_rows, "look_up", looking_up)
    monkeypatch.setattr(sql_rows._Beside, "__init__", looking_beside)
    return sizes


def read(store: tampu.Store, queue: str) -> list[dict[str, Any]]:
    pieces = store_for(store).plan(MessageQuery(queues=(queue,)), 1).pieces
    return [row for piece in pieces for batch in store_for(store).messages(piece) for row in batch.to_pylist()]


def test_large_messages_after_many_small_ones_are_fetched_a_few_at_a_time(
    store: tampu.Store, fetched: list[int]
) -> None:
    sizes = [10] * 200 + [LARGE] * 60 + [10] * 50
    for start in range(0, len(sizes), 10):
        for size in sizes[start : start + 10]:
            store.publish("mine", b"x" * size)
            store.publish_many("other", [b"y"] * 5)
    assert sorted(len(row["payload"]) for row in read(store, "mine")) == sorted(sizes)
    assert sum(fetched) >= 60 * LARGE
    assert max(fetched) <= ROOM + 10_000
    assert len(fetched) < 30, "small ones come many at a time"


@pytest.mark.parametrize("others", [0, 3])
def test_large_results_are_fetched_a_few_at_a_time(store: tampu.Store, fetched: list[int], others: int) -> None:
    store.queues.put("*", max_payload=LARGE * 2)
    for _ in range(60):
        store.publish("mine", 1)
        for _ in range(others):
            store.publish("other", 1)
    for queue in ("mine", "other")[: 1 + bool(others)]:
        while leases := store.claim(queue, limit=10):
            for lease in leases:
                store.ack(lease, result=b"r" * LARGE)
    rows = read(store, "mine")
    assert len(rows) == 60
    assert all(row["result"] is not None for row in rows)
    assert sum(fetched) >= 60 * LARGE
    assert max(fetched) <= ROOM + 10_000
