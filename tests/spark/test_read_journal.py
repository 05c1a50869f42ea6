"""`read` of the journal: beside what the library tells, in any cut, with filters; and once through Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, InputPartition, LessThan

import tampu
from tampu.engines.port import Trim
from tampu.model.times import SECOND, moment
from tampu.spark import columns, reading
from tampu.spark.options import Options
from tampu.spark.reading import JournalReader
from tampu.spark.stores import sqlite_journal
from tampu.spark.stores.opening import open_store

OWN = "0199aaaa-0000-4000-8000-00000000000"


class Clock:
    def __init__(self) -> None:
        self.at = 1_750_000_000 * SECOND

    def now(self) -> int:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def q(url: str, clock: Clock) -> Iterator[tampu.Queue]:
    with tampu.open(url, keepers=False, clock=clock) as queue:
        yield queue


def told(q: tampu.Queue, tenant: str | None = None) -> list[dict[str, Any]]:
    """The journal as the library tells it."""
    names = columns.JOURNAL.names
    page = q._core.engine.journal(None, 100_000, tenant)
    return [{name: getattr(t, name) for name in names} for t in page.transitions]


def rows(reader: JournalReader) -> list[dict[str, Any]]:
    parts = list(reader.partitions()) or [InputPartition(None)]
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def reader(url: str, *filters: Filter, **options: str) -> JournalReader:
    made = JournalReader(Options({"url": url, **options}))
    left = list(made.pushFilters(list(filters)))
    assert all(f.attribute == ("at",) for f in left)  # type: ignore[attr-defined]  # filters of these tests have one
    return made


def work(q: tampu.Queue, clock: Clock, seed: int = 0) -> None:
    chance = random.Random(seed)
    ids: list[str] = []
    for step in range(40):
        clock.at += chance.choice([0, 1, SECOND])
        queue = chance.choice("ab")
        own = f"{OWN[:-3]}{step:04d}" if chance.random() < 0.4 else None
        ids.append(q.publish(queue, step, type=f"t.{step % 3}", max_attempts=2, id=own).id)
        news = [tampu.NewMessage(n, type=chance.choice(["x", "y"])) for n in range(chance.randint(1, 5))]
        ids.extend(message.id for message in q.publish_many(queue, news))
        settled: list[Any] = []
        for lease in q.claim(queue, limit=chance.randint(1, 8), worker=chance.choice([None, "w1", "w2"])):
            nack = tampu.Nack(lease, chance.choice([None, f"timeout {step}", "refused"]), delay=0)
            settled.append(chance.choice([tampu.Ack(lease), nack, tampu.Reject(lease), tampu.Release(lease)]))
        if settled:
            q.settle(settled)
        q.cancel(chance.choice(ids))
    q.purge("a", state="ready")


@pytest.mark.parametrize("seed", range(3))
def test_any_history_in_any_cut_is_what_the_library_tells(q, url, clock, monkeypatch, seed):
    print("seed", seed)
    work(q, clock, seed)
    expected = told(q)
    assert len({row["verb"] for row in expected}) > 7
    assert rows(JournalReader(Options({"url": url}))) == expected
    monkeypatch.setattr(sqlite_journal, "ROWS", 7)
    monkeypatch.setattr(sqlite_journal, "RECORDS", 5)
    chance = random.Random(seed)
    with open_store(url) as store:
        for _ in range(10):
            after, upto = sorted(chance.sample(range(len(expected) + 1), 2))
            found = [row for batch in store.journal("0", after, upto, None) for row in batch.to_pylist()]
            assert found == expected[after:upto]


def test_parts_have_a_least_size_and_together_are_everything(q, url, clock, monkeypatch):
    work(q, clock)
    expected = told(q)
    assert len(JournalReader(Options({"url": url})).partitions()) == 1
    monkeypatch.setattr(reading, "LEAST_TRANSITIONS", 10)
    many = JournalReader(Options({"url": url, "minPartitions": "5"}))
    assert len(many.partitions()) == 5
    assert rows(many) == expected


def test_a_read_begins_and_ends_where_it_is_told(q, url, clock):
    assert rows(reader(url)) == []
    work(q, clock)
    expected = told(q)
    count = len(expected)
    assert rows(reader(url, startingOffsets='{"0": 10}', endingOffsets='{"0": 12}')) == expected[10:12]
    assert rows(reader(url, startingOffsets="latest")) == []
    assert rows(reader(url, startingOffsets=f'{{"0": {count - 1}}}', endingOffsets='{"0": 99999}')) == expected[-1:]
    assert rows(reader(url, startingOffsets='{"0": 99999}')) == []
    middle = expected[count // 2]["at"]
    assert rows(reader(url, startingTime=middle.isoformat())) == [row for row in expected if row["at"] >= middle]
    planned = reader(url)
    parts = planned.partitions()
    q.publish("a", "later")
    assert sum(batch.num_rows for part in parts for batch in planned.read(part)) == count


@pytest.mark.parametrize("wrong", ["first", '{"0": -5}', "[]", '{"7": 1}', "{}"])
def test_an_offset_that_makes_no_sense_is_refused(q, url, wrong):
    q.publish("a", 1)
    with pytest.raises(tampu.InvalidConfig, match=r"earliest, latest, or a position|partitions are 0"):
        rows(reader(url, startingOffsets=wrong))


def test_tenants_are_kept_apart(q, url):
    with tampu.open(url, tenant="other", keepers=False) as other:
        q.publish("a", 1)
        other.publish("a", 2)
        other.publish("b", 3)
    assert [row["tenant"] for row in rows(reader(url))] == ["default"]
    assert [row["queue"] for row in rows(reader(url, tenant="other"))] == ["a", "b"]
    assert rows(reader(url, EqualTo(("tenant",), "other"))) == []
    assert rows(reader(url, In(("tenant",), ("other", "default")))) == told(q, "default")
    assert rows(reader(url, tenant="*")) == told(q)
    assert rows(reader(url, EqualTo(("tenant",), "other"), tenant="*")) == told(q, "other")


def test_filters_leave_less_to_read(q, url, clock):
    work(q, clock)
    expected = told(q)

    def read_with(*filters: Filter) -> list[int]:
        return [row["offset"] for row in rows(reader(url, *filters))]

    assert read_with(EqualTo(("queue",), "b")) == [row["offset"] for row in expected if row["queue"] == "b"]
    assert read_with(In(("queue",), ("c", None))) == []
    assert read_with(GreaterThan(("offset",), 20), LessThan(("offset",), 30)) == list(range(21, 30))
    assert read_with(EqualTo(("offset",), 9)) == [9]
    middle = expected[len(expected) // 2]["at"]
    after = [row["offset"] for row in expected if row["at"] >= middle]
    assert read_with(GreaterThanOrEqual(("at",), middle)) == after
    assert read_with(LessThan(("at",), middle)) == [row["offset"] for row in expected if row["at"] < middle]


def test_a_clock_that_went_back_hides_nothing(q, url, clock):
    times = []
    for step in (0, 10, 20, 5, 15, 30):
        clock.at = (1_750_000_000 + step) * SECOND
        times.append(moment(clock.at))
        q.publish("a", step)
    for limit in range(0, 31, 5):
        at = datetime.fromtimestamp(1_750_000_000 + limit, UTC)
        later = {row["offset"] for row in rows(reader(url, GreaterThanOrEqual(("at",), at)))}
        assert later >= {number + 1 for number, time in enumerate(times) if time >= at}
        earlier = {row["offset"] for row in rows(reader(url, LessThan(("at",), at)))}
        assert earlier >= {number + 1 for number, time in enumerate(times) if time < at}
    with open_store(url) as store:
        assert store.at_time(clock.at + SECOND) == store.until_time(clock.at + SECOND) == {"0": 6}


def trim(q: tampu.Queue, clock: Clock) -> None:
    """Everything so far goes out of the journal but the last transition."""
    clock.at += 100 * SECOND
    q.publish("a", "kept")
    q._core.engine.run([Trim({}, 1000 * SECOND, 50 * SECOND, 100_000)])


def test_what_was_trimmed_is_an_error_that_names_it_or_passed_over(q, url, clock):
    work(q, clock)
    planned = reader(url)
    parts = planned.partitions()
    count = len(told(q))
    trim(q, clock)
    with pytest.raises(tampu.NotFound, match=rf"transitions 1 to {count} of the journal were trimmed"):
        list(planned.read(parts[0]))
    assert [row["offset"] for row in rows(reader(url))] == [count + 1]
    with pytest.raises(tampu.NotFound, match=rf"transitions 6 to {count} .*failOnDataLoss"):
        reader(url, startingOffsets='{"0": 5}').partitions()
    lossy = reader(url, startingOffsets='{"0": 5}', failOnDataLoss="false")
    assert [row["offset"] for row in rows(lossy)] == [count + 1]
    late = JournalReader(Options({"url": url, "failOnDataLoss": "false"}))
    assert list(late.read(parts[0])) == []


def test_a_queue_can_only_be_drained_by_a_stream(url):
    with pytest.raises(tampu.InvalidConfig, match="readStream"):
        reading.reader("queue", Options({"url": url}))
    with pytest.raises(tampu.InvalidConfig, match="the option url is missing"):
        reading.reader("journal", Options({}))


def test_spark_reads_the_journal_and_pushes_filters_down(q, url, clock, spark):
    work(q, clock)
    expected = told(q)
    frame = spark.read.format("tampu").options(url=url, kind="journal", startingOffsets='{"0": 3}').load()
    names = columns.JOURNAL.names
    found = [row.asDict() for row in frame.orderBy("offset").collect()]
    zone = datetime.now().astimezone().tzinfo
    assert [{**row, "at": row["at"].replace(tzinfo=zone).astimezone(UTC)} for row in found] == expected[3:]
    assert frame.columns == names
    narrow = frame.where("queue = 'b' and offset between 10 and 60 and verb = 'claim'")
    assert {row.offset for row in narrow.select("offset").collect()} == {
        row["offset"]
        for row in expected
        if row["queue"] == "b" and 10 <= row["offset"] <= 60 and row["verb"] == "claim"
    }
