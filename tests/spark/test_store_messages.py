"""Snapshots of messages out of a store, beside what the library says of each message. No Spark."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import tampu
from tampu.broker import access
from tampu.engines.port import Trim
from tampu.model.times import SECOND, instant
from tampu.stores import columns
from tampu.stores.open_store import open_store
from tampu.stores.port import ArrowStore, MessageQuery, SnapshotPlan
from tests.spark.engines import URLS, opened, small_batches, small_pieces, store_for

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
def q(url: str, clock: Clock) -> Iterator[tampu.Store]:
    with opened(url, clock) as queue:
        yield queue


def store(q: tampu.Store) -> ArrowStore:
    """With the clock of the test."""
    return store_for(q)


def plan(q: tampu.Store, pieces: int = 4, **query: Any) -> SnapshotPlan:
    return store(q).plan(MessageQuery(**query), pieces)


def read(q: tampu.Store, planned: SnapshotPlan) -> dict[str, dict[str, Any]]:
    rows = [row for piece in planned.pieces for batch in store(q).messages(piece) for row in batch.to_pylist()]
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows), "a message came twice"
    return found


def told(message: tampu.Message) -> dict[str, Any]:
    """The columns of a message as the library tells of it."""
    names = ("id", "tenant", "queue", "type", "content_type", "priority", "attempts", "max_attempts", "created_at",
             "run_at", "deadline", "expires_at", "ended_at", "key", "idempotency_key", "correlation_id", "causation_id",
             "parent_id", "group", "source", "reason", "last_error")  # fmt: skip
    return {name: getattr(message, name) for name in names} | {
        "state": message.state.value,
        "payload": message.raw,
        "headers": list(message.headers.items()) or None,
        "labels": list(message.labels.items()) or None,
        "result": None if message.result_raw is None else msgspec.json.encode(message.result).decode(),
    }


def all_told(q: tampu.Store, ids: list[str]) -> dict[str, dict[str, Any]]:
    return {id: told(q.get(id)) for id in ids}


def every_state(q: tampu.Store, clock: Clock) -> list[str]:
    """Messages in every state and with every field; their ids."""
    when = datetime.fromisoformat("2026-01-31T12:00:00Z")
    made = [
        q.publish("work", {"n": 1}),
        q.publish("work", b"\xff\xfe\x00", type="raw.bytes"),
        q.publish("work", None, priority=7, headers={"trace": "1"}, labels={"city": "Cusco", "é": "ü"}),
        q.publish("work", "text", deadline=when, correlation_id="c", causation_id="d", parent_id="p", source="s"),
        q.publish("work", [1], key="k", idempotency_key="i", max_attempts=2, id=OWN + "1"),
        q.publish("work", b"5", type="t" * 40, content_type="application/" + "x" * 40),
    ]
    for lease in q.claim("work", limit=2, worker="w"):
        q.ack(lease, {"sum": 3, "list": [1, None]})
    q.nack(q.claim("work")[0], "first\nsecond line", delay=0)
    q.nack(q.claim("work")[0], ValueError("later"), delay=60)
    q.reject(q.claim("work")[0], "unrecoverable", "bad 17")
    made.append(q.publish("held", {}, hold="review", delay=5))
    made.append(q.publish("late", {}, delay=3600, group="g"))
    made.append(q.publish("gone", {}, id=OWN + "2"))
    q.cancel(made[-1].id)
    made.append(q.publish("old", {}, ttl=1))
    clock.at += 2 * SECOND
    made.extend(q.publish_many("many", [{"n": n} for n in range(20)]))
    q.claim("many", limit=3)
    q.claim("old")
    return [message.id for message in made]


def test_every_message_is_read_as_the_library_tells_of_it(q, clock, monkeypatch):
    ids = every_state(q, clock)
    expected = all_told(q, ids)
    assert {row["state"] for row in expected.values()} == {state.value for state in tampu.State}
    planned = plan(q)
    assert planned.position == q.journal(limit=1).latest
    assert read(q, planned) == expected
    small_pieces(monkeypatch, 1, 2)
    planned = plan(q, pieces=7)
    assert len(planned.pieces) > 4
    assert read(q, planned) == expected


def test_an_empty_file_has_no_pieces(q):
    assert list(plan(q).pieces) == []
    q.publish("work", 1)
    assert list(plan(q, queues=("other",)).pieces) == []
    assert len(read(q, plan(q))) == 1


def test_a_snapshot_stays_what_it_was_while_the_queue_goes_on(q, clock):
    ids = every_state(q, clock)
    expected = all_told(q, ids)
    dead = next(row for row in expected.values() if row["state"] == "dead")
    planned = plan(q)
    clock.at += 7200 * SECOND
    q.replay("work", ids=[dead["id"]])
    for _ in range(3):
        for queue in ("work", "late", "many"):
            for number, lease in enumerate(q.claim(queue, limit=20)):
                if number % 2:
                    q.nack(lease, "another error", delay=0)
                else:
                    q.ack(lease, "done now")
    q.free(next(row["id"] for row in expected.values() if row["state"] == "held"))
    q.publish_many("work", [1, 2, 3])
    assert read(q, planned) == expected
    assert read(q, plan(q)) != expected


def test_a_dead_message_that_was_replayed_keeps_its_expiry_in_the_snapshot(q, clock):
    message = q.publish("work", 1, ttl=60)
    q.reject(q.claim("work")[0], "no", "why")
    clock.at += 100 * SECOND
    planned = plan(q)
    q.replay("work", ids=[message.id])
    row = read(q, planned)[message.id]
    assert (row["state"], row["expires_at"], row["last_error"]) == ("dead", message.expires_at, "why")
    assert q.get(message.id).expires_at is None


def test_a_payload_replaced_by_its_key_may_be_the_newer_one(q):
    message = q.publish("work", "old", key="k")
    planned = plan(q)
    q.publish("work", "new", key="k")
    assert read(q, planned)[message.id]["payload"] == b'"new"'


@pytest.mark.parametrize("state", ["done", "dead", "ready", "delayed"])
def test_a_message_that_was_removed_since_the_plan_is_an_error(q, state):
    q.publish_many("work", [1, 2, 3])
    if state == "delayed":
        q.publish("work", 1, delay=50)
    for lease in q.claim("work", limit=2) if state in ("done", "dead") else []:
        q.ack(lease) if state == "done" else q.reject(lease)
    planned = plan(q, states=(tampu.State(state),))
    q.purge("work", state=state)
    with pytest.raises(tampu.NotFound, match=r"removed after .*retention or a purge"):
        read(q, planned)


def test_retention_that_takes_some_of_the_ended_ones_is_an_error(q, clock):
    for _ in range(3):
        q.publish("work", 1)
        q.ack(q.claim("work")[0])
        clock.at += SECOND
    planned = plan(q)
    access.engine(q).run([Trim({}, 2 * SECOND, 1000 * SECOND, 100)])
    assert q.stats("work").counts["done"] == 1
    with pytest.raises(tampu.NotFound):
        read(q, planned)


def test_tenants_are_kept_apart(q, url):
    with opened(url, tenant="other") as other:
        mine, theirs = q.publish("work", 1, id=OWN + "1"), other.publish("work", 2, id=OWN + "1")
        plain = other.publish("work", 3)
    assert read(q, plan(q))[mine.id]["payload"] == b"1"
    assert read(q, plan(q, tenant="other")).keys() == {theirs.id, plain.id}
    assert read(q, plan(q, tenant="nobody")) == {}
    assert read(q, plan(q, ids=(plain.id,))) == {}
    assert [row["payload"] for row in read(q, plan(q, ids=(OWN + "1",))).values()] == [b"1"]
    everything = plan(q, tenant=None)
    assert sum(b.num_rows for piece in everything.pieces for b in store(q).messages(piece)) == 3
    assert store(q).by_ids("default", [plain.id, mine.id])["payload"].to_pylist() == [b"1"]


def test_a_query_leaves_only_what_it_names(q, clock):
    start = clock.at
    for second in range(6):
        q.publish("even" if second % 2 == 0 else "odd", second)
        clock.at += SECOND
    for lease in q.claim("even", limit=2):
        q.ack(lease)
        clock.at += SECOND
    rows = read(q, plan(q))

    def left(**query: Any) -> list[int]:
        return sorted(int(row["payload"]) for row in read(q, plan(q, **query)).values())

    assert left(queues=("odd",)) == [1, 3, 5]
    assert left(queues=("odd", "even"), states=(tampu.State.DONE,)) == [0, 2]
    assert left(created_from=start + SECOND, created_to=start + 3 * SECOND) == [1, 2]
    ended = sorted(instant(row["ended_at"], "") for row in rows.values() if row["ended_at"])
    assert left(ended_from=ended[1]) == [2]
    assert left(ended_to=ended[1]) == [0]
    ids = [id for id, row in rows.items() if row["payload"] in (b"1", b"2")]
    assert left(ids=(*ids, ids[0].upper(), "no id", OWN + "9")) == [1, 2]
    assert left(ids=tuple(ids), states=(tampu.State.DONE,)) == [2]
    assert left(ids=tuple(ids), ended_from=ended[1]) == [2]


def test_messages_by_id_come_in_the_order_asked_for(q, clock):
    ids = every_state(q, clock)
    expected = all_told(q, ids)
    order = [*reversed(ids), OWN + "9", ids[0]]
    found = store(q).by_ids("default", order)
    assert found.to_pylist() == [expected[id] for id in order if id in expected]
    assert store(q).by_ids("default", []).num_rows == 0


def test_batches_are_bounded_by_bytes_and_large_messages_of_others_do_not_stop_them(q, monkeypatch):
    small_batches(monkeypatch, 10_000)
    for size in (9_000, 9_000, 30_000, 10, 10):
        q.publish("mine", b"x" * size)
        q.publish("other", b"y" * 50_000)
    planned = plan(q, queues=("mine",))
    batches = [b for piece in planned.pieces for b in store(q).messages(piece)]
    assert len(batches) > 2
    sizes = [len(value) for batch in batches for value in batch["payload"].to_pylist()]
    assert sorted(sizes) == [10, 10, 9_000, 9_000, 30_000]


def test_another_store_is_refused(q, engine, tmp_path: Path):
    q.publish("work", 1)
    (piece,) = plan(q).pieces
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with open_store(URLS[engine](elsewhere)) as other, pytest.raises(tampu.TampuError, match="planned on"):
        list(other.messages(piece))


@pytest.mark.parametrize("seed", range(3))
def test_any_history_is_read_as_the_library_tells_of_it(q, clock, monkeypatch, seed):
    print("seed", seed)
    chance = random.Random(seed)
    small_pieces(monkeypatch, 5, 4)
    ids: list[str] = []
    for step in range(60):
        clock.at += chance.choice([0, 1, 500, SECOND])
        queue = chance.choice("abc")
        if chance.random() < 0.5:
            own = f"{OWN[:-3]}{step:04d}" if chance.random() < 0.3 else None
            ids.append(q.publish(queue, step, delay=chance.choice([None, 3]), max_attempts=2, id=own).id)
            ids.extend(m.id for m in q.publish_many(queue, range(chance.randint(1, 6))))
        for lease in q.claim(queue, limit=chance.randint(1, 6)):
            getattr(q, chance.choice(["ack", "nack", "reject", "release"]))(lease)
        if chance.random() < 0.2:
            q.cancel(chance.choice(ids))
    expected = all_told(q, ids)
    planned = plan(q, pieces=chance.randint(1, 9))
    for lease in q.claim("a", limit=10):
        q.ack(lease)
    assert read(q, planned) == expected


def test_the_columns_are_those_of_the_source(q):
    q.publish("work", 1)
    (batch,) = [b for piece in plan(q).pieces for b in store(q).messages(piece)]
    assert isinstance(batch, pa.RecordBatch)
    assert batch.schema.equals(columns.MESSAGES)


def test_a_snapshot_is_what_its_position_says_while_others_work(q, url):
    """Beside a process that never rests, each message is in the state that the journal told last up to the position."""
    q.publish_many("b", range(300))
    with subprocess.Popen([sys.executable, "-c", RESTLESS, url], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        planned: dict[str, SnapshotPlan] = {}
        while len(planned) < 6:
            other.stdout.readline()
            one = plan(q, pieces=3)
            planned[str(one.position)] = one
        other.kill()
    transitions = access.engine(q).journal(None, 1_000_000, None).transitions
    for one in planned.values():
        expected: dict[str, str] = {}
        for t in transitions:
            if t.offset <= one.position.get(t.partition, 0):
                expected[t.id] = str(t.state)
        assert {id: row["state"] for id, row in read(q, one).items()} == expected


RESTLESS = """
import random, sys, tampu
chance = random.Random(1)
with tampu.open(sys.argv[1], maintenance=False) as q:
    while True:
        print(flush=True)
        queue = chance.choice("ab")
        q.publish_many(queue, range(chance.randint(1, 30)))
        q.publish(queue, 1, delay=chance.choice([0, 1000]))
        for lease in q.claim(queue, limit=chance.randint(1, 40)):
            getattr(q, chance.choice(["ack", "ack", "nack", "reject", "release"]))(lease)
"""
