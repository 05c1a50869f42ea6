"""`read` of messages: options, filters that reach the store, and Spark itself."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

import tampu
from tampu.model.times import instant
from tampu.spark.options import Options
from tampu.spark.read import MessagesReader
from tests.servers import redis
from tests.spark.engines import opened

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def reader(url: str, *filters: Filter, **options: str) -> MessagesReader:
    made = MessagesReader(Options({"url": url, **options}))
    assert list(made.pushFilters(list(filters))) == []
    return made


def rows(made: MessagesReader) -> list[dict[str, Any]]:
    parts = list(made.partitions()) or [InputPartition(None)]
    return [row for part in parts for batch in made.read(part) for row in batch.to_pylist()]


def payloads(*args: Any, **options: str) -> list[int]:
    return sorted(int(row["payload"]) for row in rows(reader(*args, **options)))


@pytest.fixture
def ids(store: tampu.Store) -> list[str]:
    """Messages 0 to 9, half of them in each of two queues; of queue a 0 and 2 are done and 4 is dead."""
    made = [store.publish("ab"[n % 2], n).id for n in range(10)]
    first, second, third = store.claim("a", limit=3)
    store.ack(first)
    store.ack(second)
    store.reject(third)
    return made


def test_options_choose_queues_and_states(store, url, ids):
    assert payloads(url) == list(range(10))
    assert payloads(url, queue="a") == [0, 2, 4, 6, 8]
    assert payloads(url, queue="a, b", state="done,DEAD") == [0, 2, 4]
    assert payloads(url, queue="nowhere") == []
    with pytest.raises(tampu.InvalidConfig, match="one of ready, delayed"):
        reader(url, state="finished")
    with pytest.raises(tampu.InvalidConfig, match="the option url is missing"):
        MessagesReader(Options({}))


def test_an_option_chooses_columns_and_their_order(store, url, ids):
    made = rows(reader(url, state="done", columns="state, payload,id"))
    assert [list(row.items()) for row in made] == [
        [("state", "done"), ("payload", b"0"), ("id", ids[0])],
        [("state", "done"), ("payload", b"2"), ("id", ids[2])],
    ]
    without_bodies = rows(reader(url, state="dead", columns="id,reason,attempts", includePosition="true"))
    assert [list(row) for row in without_bodies] == [["id", "reason", "attempts", "position"]]
    assert without_bodies[0]["id"] == ids[4]
    with pytest.raises(tampu.InvalidConfig, match="no such column: colour"):
        reader(url, columns="id,colour")
    with pytest.raises(tampu.InvalidConfig, match="named twice"):
        reader(url, columns="id,id")


def test_options_choose_times(store, url, ids):
    created = store.get(ids[5]).created_at
    assert payloads(url, createdFrom=created.isoformat()) == [5, 6, 7, 8, 9]
    assert payloads(url, createdTo=created.isoformat()) == [0, 1, 2, 3, 4]
    ended = store.get(ids[2]).ended_at
    assert ended is not None
    assert payloads(url, endedFrom=ended.isoformat()) == [2, 4]
    assert payloads(url, endedTo=ended.isoformat()) == [0]
    with pytest.raises(tampu.InvalidConfig, match="a time with a zone"):
        reader(url, createdFrom="2026-01-31")


def test_filters_reach_the_store(store, url, ids):
    assert payloads(url, EqualTo(("queue",), "a"), In(("state",), ("done", "dead", None))) == [0, 2, 4]
    assert payloads(url, EqualTo(("queue",), "b"), queue="a") == []
    assert payloads(url, EqualTo(("state",), "no such")) == []
    assert payloads(url, In(("id",), (ids[3], ids[4], "x")), EqualTo(("queue",), "b")) == [3]
    assert payloads(url, EqualTo(("id",), ids[3]), EqualTo(("id",), ids[4])) == []
    created, ended = store.get(ids[5]).created_at, store.get(ids[2]).ended_at
    assert payloads(url, GreaterThanOrEqual(("created_at",), created), IsNotNull(("created_at",))) == [5, 6, 7, 8, 9]
    assert payloads(url, EqualTo(("created_at",), created)) == [5]
    assert payloads(url, IsNotNull(("ended_at",))) == [0, 2, 4]
    assert payloads(url, LessThanOrEqual(("ended_at",), ended), IsNotNull(("ended_at",))) == [0, 2]
    assert payloads(url, LessThan(("ended_at",), ended + timedelta(days=1)), state="ready") == []


def test_filters_that_do_not_reach_the_store_are_left_to_spark(store, url, ids):
    made = MessagesReader(Options({"url": url, "tenant": "*"}))
    left = [
        StringStartsWith(("queue",), "a"),
        EqualTo(("payload",), b"1"),
        EqualTo(("headers", "x"), "1"),
        In(("tenant",), ("default", "other")),
        GreaterThanOrEqual(("created_at",), datetime(2020, 1, 1)),  # noqa: DTZ001 - a time without a zone says nothing
    ]
    assert list(made.pushFilters(list(left))) == left
    assert len(rows(made)) == 10


def test_no_filter_reaches_another_tenant(store, url, ids):
    with opened(url, tenant="other") as other:
        theirs = other.publish("a", 99)
    assert 99 not in payloads(url)
    assert payloads(url, EqualTo(("tenant",), "other")) == []
    assert payloads(url, EqualTo(("id",), theirs.id)) == []
    assert payloads(url, EqualTo(("id",), theirs.id), tenant="*") == [99]
    assert payloads(url, EqualTo(("tenant",), "other"), tenant="*") == [99]
    assert payloads(url, EqualTo(("tenant",), "default"), EqualTo(("tenant",), "other"), tenant="*") == []


def test_spark_does_not_see_that_a_reader_takes_filters(url):
    """By this it refuses a reader where the setting is off; see pushdown.py."""
    made = MessagesReader(Options({"url": url}))
    assert getattr(made.pushFilters, "__func__", None) is DataSourceReader.pushFilters
    off = MessagesReader(Options({"url": url, "pushdown": "false"}))
    filters: list[Filter] = [EqualTo(("queue",), "a")]
    assert list(off.pushFilters(filters)) == filters


def test_spark_gets_the_same_rows_with_and_without_pushed_filters(store, url, ids, spark):
    where = f"queue = 'a' and state in ('done', 'dead') and created_at >= timestamp'{store.get(ids[1]).created_at}'"

    def found() -> tuple[list[str], bool]:
        frame = spark.read.format("tampu").option("url", url).load().where(where)
        plan = frame._jdf.queryExecution().executedPlan().toString()
        return sorted(row.id for row in frame.collect()), "Filter" in plan.replace("RuntimeFilters", "")

    expected = sorted([ids[2], ids[4]])
    assert found() == (expected, False)
    spark.conf.set(PUSHDOWN, "false")
    try:
        assert found() == (expected, True)
    finally:
        spark.conf.set(PUSHDOWN, "true")


def test_no_plan_of_spark_holds_a_password(spark):
    url = redis.redis.url().replace("://", "://default:s3cret@")  # a server without passwords takes any
    with tampu.open(url, maintenance=False) as store:
        store.publish("jobs", 1)
    frame = spark.read.format("tampu").option("url", url).load()
    assert frame.count() == 1
    assert "s3cret" not in frame._jdf.queryExecution().toString()
    stream = spark.readStream.format("tampu").options(url=url, kind="queue", queue="jobs", consumer="c").load()
    assert "s3cret" not in stream._jdf.queryExecution().toString() + stream.schema.json()


def test_spark_reads_every_kind_of_value(store, url, spark):
    from pyspark.sql import functions as F

    store.queues.put("big", max_payload=16 << 20)
    large = store.publish("big", b"\xff" * (10 << 20)).id
    odd = store.publish("odd", b"\x00\xff\xfe", labels={"city": "Cusco"}, headers={"a": "b"}, key="k").id
    empty = store.publish("odd", None).id
    done = store.publish("done", {"n": 1}, type="sum.up").id
    store.ack(store.claim("done")[0], {"sum": 3})
    frame = spark.read.format("tampu").options(url=url, includePosition="true").load()
    found = {
        row.id: row
        for row in frame.withColumn("bytes", F.length("payload"))
        .withColumn("payload", F.when(F.length("payload") < 100, F.col("payload")))
        .withColumn("us", F.unix_micros("created_at"))
        .collect()
    }
    assert found.keys() == {large, odd, empty, done}
    assert found[large].bytes == 10 << 20
    assert bytes(found[odd].payload) == b"\x00\xff\xfe"
    assert (found[odd].labels, found[odd].headers, found[odd].key) == ({"city": "Cusco"}, {"a": "b"}, "k")
    assert bytes(found[empty].payload) == b"null"
    assert (found[done].result, found[done].state, found[done].attempts) == ('{"sum":3}', "done", 1)
    (position,) = {row.position for row in found.values()}
    assert json.loads(position) == store.journal(limit=1).latest
    assert sum(json.loads(position).values()) == 6
    assert {row.us for row in found.values()} == {instant(store.get(id).created_at, "") for id in found}


def test_spark_reads_what_was_there_when_it_planned_or_fails(store, url, spark):
    from pyspark.errors import PythonException

    def planned() -> Any:
        frame = spark.read.format("tampu").option("url", url).load()
        assert frame._jdf.queryExecution().toRdd().getNumPartitions() == 1
        return frame

    store.publish_many("work", range(20))
    store.settle([tampu.Ack(lease) for lease in store.claim("work", limit=5)])
    frame = planned()
    store.settle([tampu.Ack(lease) for lease in store.claim("work", limit=10)])
    states = [row.state for row in frame.collect()]
    assert {state: states.count(state) for state in states} == {"ready": 15, "done": 5}
    frame = planned()
    store.purge("work", state="ready")
    with pytest.raises(PythonException, match="removed after this read was planned"):
        frame.collect()
