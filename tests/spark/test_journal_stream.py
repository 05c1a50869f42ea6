"""`readStream` of the journal: each transition exactly once, also over a restart and a batch that is repeated."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import tampu
from tampu.broker import access
from tampu.engines.port import Trim
from tampu.model.times import SECOND, moment
from tampu.spark import read
from tampu.spark.journal_stream import JournalStreamReader, share_fairly
from tampu.spark.options import Options
from tests.spark.engines import opened, partition

SECONDS = 120
"""A stream of these tests takes a few; a machine under load takes longer."""


class Clock:
    def __init__(self) -> None:
        self.at = 1_750_000_000 * SECOND

    def now(self) -> int:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(url: str, clock: Clock) -> Iterator[tampu.Store]:
    with opened(url, clock) as queue:
        yield queue


@pytest.fixture
def part(engine: str) -> str:
    """Where the journal of the queue a is."""
    return partition(engine, "a")


def stream(url: str, **options: str) -> JournalStreamReader:
    return JournalStreamReader(Options({"url": url, "startingOffsets": "earliest", **options}))


def offsets(reader: JournalStreamReader, start: Any, end: Any) -> list[int]:
    parts = reader.partitions(start, end)
    return [offset for part in parts for batch in reader.read(part) for offset in batch["offset"].to_pylist()]


def test_a_stream_begins_where_its_options_say(store, url, part, clock):
    store.publish_many("a", range(3))
    clock.at += SECOND
    store.publish_many("a", range(2))
    assert stream(url).initialOffset() == {part: 0}
    assert stream(url, startingOffsets=json.dumps({part: 2})).initialOffset() == {part: 2}
    assert stream(url, startingTime=moment(clock.at).isoformat()).initialOffset() == {part: 3}
    with pytest.raises(tampu.InvalidConfig, match="a stream has no end"):
        stream(url, endingOffsets="latest")


def test_a_stream_from_the_end_settles_where_the_end_was_in_its_first_batch(store, url, part):
    store.publish_many("a", range(3))
    reader = stream(url, startingOffsets="latest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {part: 3}
    store.publish("a", "later")
    again = stream(url, startingOffsets="latest")
    assert offsets(again, again.initialOffset(), end) == []
    assert offsets(again, end, again.latestOffset(end, ReadAllAvailable())) == [4]


def test_a_batch_is_no_longer_than_the_limit(store, url, part):
    store.publish_many("a", range(10))
    assert stream(url).getDefaultReadLimit() == ReadAllAvailable()
    assert stream(url, maxMessagesPerTrigger="5").getDefaultReadLimit() == ReadMaxRows(5)
    reader = stream(url, maxOffsetsPerTrigger="4")
    assert reader.getDefaultReadLimit() == ReadMaxRows(4)
    assert reader.latestOffset({part: 0}, ReadMaxRows(4)) == {part: 4}
    assert reader.latestOffset({part: 8}, ReadMaxRows(4)) == {part: 10}
    assert reader.latestOffset({part: 0}, ReadAllAvailable()) == {part: 10}
    assert reader.reportLatestOffset() == {part: 10}


def test_available_now_leaves_out_what_comes_later(store, url, part):
    store.publish_many("a", range(5))
    reader = stream(url)
    reader.prepareForTriggerAvailableNow()
    store.publish_many("a", range(5))
    assert reader.latestOffset({part: 0}, ReadMaxRows(3)) == {part: 3}
    assert reader.latestOffset({part: 3}, ReadMaxRows(3)) == {part: 5}
    assert reader.latestOffset({part: 5}, ReadMaxRows(3)) == {part: 5}
    assert reader.partitions({part: 5}, {part: 5}) == []
    assert reader.reportLatestOffset() == {part: 10}


def test_a_batch_that_is_read_again_is_the_same(store, url, part, monkeypatch):
    monkeypatch.setattr(read, "LEAST_TRANSITIONS", 3)
    store.publish_many("a", range(10))
    first = offsets(stream(url), {part: 2}, {part: 9})
    store.publish_many("a", range(10))
    assert offsets(stream(url), {part: 2}, {part: 9}) == first == list(range(3, 10))


def places(reader: JournalStreamReader) -> list[tuple[str, str]]:
    """(tenant, queue) of everything that a stream has from the beginning on."""
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted((row["tenant"], row["queue"]) for row in rows)


def test_a_stream_of_a_tenant_has_only_its_transitions(store, url):
    with opened(url, tenant="other") as other:
        store.publish("a", 1)
        other.publish("a", 2)
        store.publish("b", 3)
    assert places(stream(url)) == [("default", "a"), ("default", "b")]
    assert places(stream(url, tenant="other")) == [("other", "a")]
    assert places(stream(url, tenant="*", queue="a")) == [("default", "a"), ("other", "a")]


def test_a_queue_that_comes_later_is_read_from_its_beginning(store, url):
    store.publish_many("a", range(3))
    reader = stream(url)
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    store.publish_many("b", range(4))
    store.publish("a", 3)
    second = reader.latestOffset(first, ReadAllAvailable())
    parts = reader.partitions(first, second)
    rows = [row["queue"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(rows) == ["a", "b", "b", "b", "b"]
    assert reader.latestOffset(second, ReadAllAvailable()) == second


def test_partitions_share_a_limited_batch_by_what_they_have():
    assert share_fairly({"a": 100, "b": 10, "c": 0}, 11) == {"a": 10, "b": 1, "c": 0}
    assert share_fairly({"a": 3, "b": 1}, 10) == {"a": 3, "b": 1}
    assert sum(share_fairly({"a": 7, "b": 7, "c": 7}, 10).values()) == 10
    assert share_fairly({}, 10) == {}


def test_loss_is_an_error_that_names_what_is_lost_or_a_warning(store, url, part, clock, caplog):
    store.publish_many("a", range(10))
    clock.at += 100 * SECOND
    store.publish_many("a", range(5))
    reader = stream(url)
    parts = reader.partitions({part: 2}, {part: 15})
    access.engine(store).run([Trim({}, 1000 * SECOND, 50 * SECOND, 1000)])
    for lost in (
        lambda: reader.latestOffset({part: 2}, ReadAllAvailable()),
        lambda: reader.partitions({part: 2}, {part: 15}),
        lambda: list(reader.read(parts[0])),
    ):
        with pytest.raises(tampu.NotFound, match="transitions 3 to 10 of the journal were trimmed"):
            lost()
    lossy = stream(url, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "tampu.spark"):
        assert lossy.latestOffset({part: 2}, ReadMaxRows(2)) == {part: 12}
        assert offsets(lossy, {part: 2}, {part: 12}) == [11, 12]
        assert [b["offset"].to_pylist() for b in lossy.read(parts[0])] == [[11, 12, 13, 14, 15]]
    assert "transitions 3 to 10 of the journal were trimmed; continuing after them" in caplog.text
    assert reader.latestOffset({part: 10}, ReadAllAvailable()) == {part: 15}


def test_a_journal_that_ends_before_the_checkpoint_is_an_error(store, url, part):
    store.publish("a", 1)
    for given in ("true", "false"):
        with pytest.raises(tampu.NotFound, match="restored or replaced"):
            stream(url, failOnDataLoss=given).latestOffset({part: 7}, ReadAllAvailable())


def test_each_transition_reaches_an_idempotent_sink_exactly_once(store, url, part, spark, tmp_path: Path):
    """The sink fails after it has written a batch, and the batch is repeated from the checkpoint."""
    out = tmp_path / "out"
    out.mkdir()
    seen: list[tuple[int, bool]] = []

    def run(fail_at: int | None) -> Any:
        def sink(frame: Any, batch: int) -> None:
            rows = sorted((row.offset, row.verb, row.id) for row in frame.select("offset", "verb", "id").collect())
            text = json.dumps(rows)
            place = out / f"{batch}.json"
            seen.append((batch, not place.exists() or place.read_text() == text))
            place.write_text(text)
            if batch == fail_at:
                raise RuntimeError("the sink fails after it wrote")

        query = (
            spark.readStream.format("tampu")
            .options(url=url, kind="journal", startingOffsets="earliest", maxOffsetsPerTrigger="8")
            .load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        if fail_at is None:
            assert query.awaitTermination(SECONDS)
        else:
            with pytest.raises(StreamingQueryException, match="the sink fails after it wrote"):
                query.awaitTermination(SECONDS)
        return query

    store.publish_many("a", range(10))
    run(fail_at=1)
    for lease in store.claim("a", limit=4):
        store.ack(lease)
    progress = run(fail_at=None).recentProgress
    assert all(same for _, same in seen), "a repeated batch had other rows"
    assert [batch for batch, _ in seen].count(1) == 2
    written = [tuple(row) for place in sorted(out.iterdir()) for row in json.loads(place.read_text())]
    transitions = [(t.offset, t.verb, t.id) for t in store.journal(limit=1000).transitions]
    assert sorted(written) == transitions
    assert len(transitions) == 18
    assert json.loads(progress[-1]["sources"][0]["latestOffset"]) == {part: 18}
