"""Stretches of messages as columns out of PostgreSQL: what they hold, and how large bodies come. No Spark here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.model.errors import NotFound
from tampu.stores.open_store import open_store
from tampu.stores.port import ArrowStore, MessageQuery
from tampu.stores.sql import row_ranges
from tests.servers import pgbouncer
from tests.spark.engines import URLS

OWN = "00000000-0000-4000-8000-0000000000{:02d}"


@pytest.fixture(params=["postgres", "pgbouncer"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return pgbouncer.databases.url() if request.param == "pgbouncer" else URLS["postgres"](tmp_path)


@pytest.fixture
def arrow(url: str, store: tampu.Store) -> Iterator[ArrowStore]:
    with open_store(url) as opened:
        yield opened


def rows(arrow: ArrowStore, *columns: str) -> list[dict[str, Any]]:
    query = MessageQuery(columns=columns) if columns else MessageQuery()
    pieces = arrow.plan(query, 1).pieces
    found = [row for piece in pieces for batch in arrow.messages(piece) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row["id"])


def test_what_only_some_messages_have_is_with_the_right_ones(
    store: tampu.Store, arrow: ArrowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_ranges, "RANGE_SIZE", 3)
    sent = [
        store.publish(
            "work",
            i,
            id=OWN.format(i) if i % 3 == 0 else None,
            ttl=1000 if i % 4 == 1 else None,
            max_attempts=1 + i % 5,
            type=f"kind.{i % 2}",
        ).id
        for i in range(20)
    ]
    found = rows(arrow)
    assert [row["id"] for row in found] == sorted(sent)
    for row in found:
        message = store.get(row["id"])
        expected = (message.max_attempts, message.created_at, message.expires_at, message.type)
        assert (row["max_attempts"], row["created_at"], row["expires_at"], row["type"]) == expected


def test_large_bodies_come_a_few_at_a_time_and_are_not_read_when_nobody_wants_them(
    store: tampu.Store, arrow: ArrowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [10, 1_000, 30_000, 20, 9_000, 9_000, 9_000, 30]
    for size in sizes:
        store.publish("work", b"x" * size)
    read: list[int] = []
    real = row_ranges.RowRanges._read

    def reading(self: Any, ranges: Any, most: int) -> Any:
        found = real(self, ranges, most)
        read.append(sum(len(stretch.fields[-1]) for stretch in found))
        return found

    monkeypatch.setattr(row_ranges.RowRanges, "_read", reading)
    monkeypatch.setattr(row_ranges, "BYTES", 20_000)
    assert [len(row["payload"]) for row in rows(arrow, "id", "payload")] == sizes
    assert len(read) > 3
    assert max(read) < 32_000
    read.clear()
    assert len(rows(arrow, "id", "state")) == len(sizes)
    assert read == [0]


def test_a_message_that_is_removed_between_two_reads_of_its_stretch_is_missed(
    store: tampu.Store, arrow: ArrowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        store.publish("work", b"x" * 5_000)
    (piece,) = arrow.plan(MessageQuery(), 1).pieces
    real = row_ranges._RowRange.cuts

    def cuts(self: Any) -> Any:
        store.purge("work", state="ready")
        return real(self)

    monkeypatch.setattr(row_ranges._RowRange, "cuts", cuts)
    with pytest.raises(NotFound, match="removed after this read was planned"):
        list(arrow.messages(piece))
