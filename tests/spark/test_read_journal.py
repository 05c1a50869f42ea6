"""`read` of the journal: beside what the library tells, in any cut, with filters; and once through Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, InputPartition, LessThan

import tampu
from tampu.broker import access
from tampu.engines.port import Trim
from tampu.model.times import SECOND, moment
from tampu.spark import read
from tampu.spark.options import Options
from tampu.spark.read import JournalReader
from tampu.stores import columns
from tampu.stores.open_store import open_store
from tests.spark.engines import opened, partition, small_records

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
def store(url: str, clock: Clock) -> Iterator[tampu.Store]:
    with opened(url, clock) as queue:
        yield queue


def journal_rows(store: tampu.Store, tenant: str | None = None) -> list[dict[str, Any]]:
    """The journal as the library tells it, partition by partition."""
    names = columns.JOURNAL.names
    page = access.engine(store).journal(None, 100_000, tenant)
    return sorted(({name: getattr(t, name) for name in names} for t in page.transitions), key=place)


def place(row: dict[str, Any]) -> tuple[str, int]:
    return row["partition"], row["offset"]


def rows(reader: JournalReader) -> list[dict[str, Any]]:
    parts = list(reader.partitions()) or [InputPartition(None)]
    return sorted((row for part in parts for batch in reader.read(part) for row in batch.to_pylist()), key=place)


def everywhere(rows: list[dict[str, Any]], offset: int) -> str:
    """A position: the same offset in each partition."""
    return json.dumps(dict.fromkeys((row["partition"] for row in rows), offset))


def reader(url: str, *filters: Filter, **options: str) -> JournalReader:
    made = JournalReader(Options({"url": url, **options}))
    left = list(made.pushFilters(list(filters)))
    assert all(f.attribute == ("at",) for f in left)  # type: ignore[attr-defined]  # filters of these tests have one
    return made


def work(store: tampu.Store, clock: Clock, seed: int = 0) -> None:
    chance = random.Random(seed)
    ids: list[str] = []
    for step in range(40):
        clock.at += chance.choice([0, 1, SECOND])
        queue = chance.choice("ab")
        own = f"{OWN[:-3]}{step:04d}" if chance.random() < 0.4 else None
        ids.append(store.publish(queue, step, type=f"t.{step % 3}", max_attempts=2, id=own).id)
        news = [tampu.NewMessage(n, type=chance.choice(["x", "y"])) for n in range(chance.randint(1, 5))]
        ids.extend(message.id for message in store.publish_many(queue, news))
        settled: list[Any] = []
        for lease in store.claim(queue, limit=chance.randint(1, 8), worker=chance.choice([None, "w1", "w2"])):
            nack = tampu.Nack(lease, chance.choice([None, f"timeout {step}", "refused"]), delay=0)
            settled.append(chance.choice([tampu.Ack(lease), nack, tampu.Reject(lease), tampu.Release(lease)]))
        if settled:
            store.settle(settled)
        store.cancel(chance.choice(ids))
    store.purge("a", state="ready")


@pytest.mark.parametrize("seed", range(3))
def test_any_history_in_any_cut_is_what_the_library_tells(store, url, clock, monkeypatch, seed):
    print("seed", seed)
    work(store, clock, seed)
    expected = journal_rows(store)
    assert len({row["verb"] for row in expected}) > 7
    assert rows(JournalReader(Options({"url": url}))) == expected
    small_records(monkeypatch, 7, 5)
    chance = random.Random(seed)
    with open_store(url) as arrow:
        for part, latest in arrow.bounds()[1].items():
            of_part = [row for row in expected if row["partition"] == part]
            assert len(of_part) == latest
            for _ in range(10):
                after, upto = sorted(chance.sample(range(latest + 1), 2))
                found = [row for batch in arrow.journal(part, after, upto, None) for row in batch.to_pylist()]
                assert found == of_part[after:upto]


def test_parts_have_a_least_size_and_together_are_everything(store, url, clock, monkeypatch):
    work(store, clock)
    expected = journal_rows(store)
    journals = len({row["partition"] for row in expected})
    assert len(JournalReader(Options({"url": url})).partitions()) == journals
    monkeypatch.setattr(read, "LEAST_TRANSITIONS", 10)
    many = JournalReader(Options({"url": url, "minPartitions": "5"}))
    assert len(many.partitions()) == 5 * journals
    assert rows(many) == expected


def test_a_read_begins_and_ends_where_its_options_say(store, url, clock):
    assert rows(reader(url)) == []
    work(store, clock)
    expected = journal_rows(store)
    count = len(expected)

    def from_to(after: int, upto: int) -> list[dict[str, Any]]:
        start, end = everywhere(expected, after), everywhere(expected, upto)
        return rows(reader(url, startingOffsets=start, endingOffsets=end))

    assert from_to(10, 12) == [row for row in expected if 10 < row["offset"] <= 12]
    assert rows(reader(url, startingOffsets="latest")) == []
    assert from_to(5, 99_999) == [row for row in expected if row["offset"] > 5]
    assert rows(reader(url, startingOffsets=everywhere(expected, 99_999))) == []
    middle = expected[count // 2]["at"]
    assert rows(reader(url, startingTime=middle.isoformat())) == [row for row in expected if row["at"] >= middle]
    planned = reader(url)
    parts = planned.partitions()
    store.publish("a", "later")
    assert sum(batch.num_rows for part in parts for batch in planned.read(part)) == count


@pytest.mark.parametrize("wrong", ["first", '{"0": -5}', "[]", '{"7": 1}', "{}"], ids=str)
def test_an_offset_that_makes_no_sense_is_refused(store, url, wrong):
    store.publish("a", 1)
    with pytest.raises(tampu.InvalidConfig, match=r"earliest, latest, or a position|partitions are (0|default/a)"):
        rows(reader(url, startingOffsets=wrong))


def test_tenants_are_kept_apart(store, url):
    with opened(url, tenant="other") as other:
        store.publish("a", 1)
        other.publish("a", 2)
        other.publish("b", 3)
    assert [row["tenant"] for row in rows(reader(url))] == ["default"]
    assert [row["queue"] for row in rows(reader(url, tenant="other"))] == ["a", "b"]
    assert rows(reader(url, EqualTo(("tenant",), "other"))) == []
    assert rows(reader(url, In(("tenant",), ("other", "default")))) == journal_rows(store, "default")
    assert rows(reader(url, tenant="*")) == journal_rows(store)
    assert rows(reader(url, EqualTo(("tenant",), "other"), tenant="*")) == journal_rows(store, "other")


def test_filters_leave_less_to_read(store, url, clock):
    work(store, clock)
    expected = journal_rows(store)

    def read_with(*filters: Filter) -> list[tuple[str, int]]:
        return [place(row) for row in rows(reader(url, *filters))]

    def where(true: Callable[[dict[str, Any]], bool]) -> list[tuple[str, int]]:
        return [place(row) for row in expected if true(row)]

    assert read_with(EqualTo(("queue",), "b")) == where(lambda row: row["queue"] == "b")
    assert read_with(In(("queue",), ("c", None))) == []
    assert read_with(GreaterThan(("offset",), 20), LessThan(("offset",), 30)) == where(
        lambda row: 20 < row["offset"] < 30
    )
    assert read_with(EqualTo(("offset",), 9)) == where(lambda row: row["offset"] == 9)
    middle = expected[len(expected) // 2]["at"]
    assert read_with(GreaterThanOrEqual(("at",), middle)) == where(lambda row: row["at"] >= middle)
    assert read_with(LessThan(("at",), middle)) == where(lambda row: row["at"] < middle)


def test_a_clock_that_went_back_hides_nothing(store, url, engine, clock):
    times = []
    for step in (0, 10, 20, 5, 15, 30):
        clock.at = (1_750_000_000 + step) * SECOND
        times.append(moment(clock.at))
        store.publish("a", step)
    for limit in range(0, 31, 5):
        at = datetime.fromtimestamp(1_750_000_000 + limit, UTC)
        later = {row["offset"] for row in rows(reader(url, GreaterThanOrEqual(("at",), at)))}
        assert later >= {number + 1 for number, time in enumerate(times) if time >= at}
        earlier = {row["offset"] for row in rows(reader(url, LessThan(("at",), at)))}
        assert earlier >= {number + 1 for number, time in enumerate(times) if time < at}
    with open_store(url) as arrow:
        at = clock.at + SECOND
        assert arrow.at_time(at) == arrow.until_time(at) == {partition(engine, "a"): 6}


def trim(store: tampu.Store, clock: Clock) -> None:
    """Everything so far goes out of the journal but the last transition."""
    clock.at += 100 * SECOND
    store.publish("a", "kept")
    access.engine(store).run([Trim({}, 1000 * SECOND, 50 * SECOND, 100_000)])


def test_what_was_trimmed_is_an_error_that_names_it_or_passed_over(store, url, engine, clock):
    store.publish_many("a", range(7))
    store.settle([tampu.Ack(lease) for lease in store.claim("a", limit=3)])
    planned = reader(url)
    parts = planned.partitions()
    count = len(journal_rows(store))
    trim(store, clock)
    with pytest.raises(tampu.NotFound, match=rf"transitions 1 to {count} of the journal were trimmed"):
        list(planned.read(parts[0]))
    assert [row["offset"] for row in rows(reader(url))] == [count + 1]
    five = json.dumps({partition(engine, "a"): 5})
    with pytest.raises(tampu.NotFound, match=rf"transitions 6 to {count} .*failOnDataLoss"):
        reader(url, startingOffsets=five).partitions()
    lossy = reader(url, startingOffsets=five, failOnDataLoss="false")
    assert [row["offset"] for row in rows(lossy)] == [count + 1]
    late = JournalReader(Options({"url": url, "failOnDataLoss": "false"}))
    assert list(late.read(parts[0])) == []


def test_a_queue_can_only_be_drained_by_a_stream(url):
    with pytest.raises(tampu.InvalidConfig, match="readStream"):
        read.reader("queue", Options({"url": url}))
    with pytest.raises(tampu.InvalidConfig, match="the option url is missing"):
        read.reader("journal", Options({}))


def test_spark_reads_the_journal_and_pushes_filters_down(store, url, clock, spark):
    work(store, clock)
    expected = journal_rows(store)
    start = everywhere(expected, 3)
    frame = spark.read.format("tampu").options(url=url, kind="journal", startingOffsets=start).load()
    names = columns.JOURNAL.names
    found = [row.asDict() for row in frame.orderBy("partition", "offset").collect()]
    zone = datetime.now().astimezone().tzinfo
    assert [{**row, "at": row["at"].replace(tzinfo=zone).astimezone(UTC)} for row in found] == [
        row for row in expected if row["offset"] > 3
    ]
    assert frame.columns == names
    narrow = frame.where("queue = 'b' and offset between 10 and 60 and verb = 'claim'")
    assert {tuple(row) for row in narrow.select("partition", "offset").collect()} == {
        place(row) for row in expected if row["queue"] == "b" and 10 <= row["offset"] <= 60 and row["verb"] == "claim"
    }
