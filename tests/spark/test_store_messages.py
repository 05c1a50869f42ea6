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
def store(url: str, clock: Clock) -> Iterator[tampu.Store]:
    with opened(url, clock) as queue:
        yield queue


def arrow(store: tampu.Store) -> ArrowStore:
    """With the clock of the test."""
    return store_for(store)


def plan(store: tampu.Store, pieces: int = 4, **query: Any) -> SnapshotPlan:
    return arrow(store).plan(MessageQuery(**query), pieces)


def read(store: tampu.Store, planned: SnapshotPlan) -> dict[str, dict[str, Any]]:
    rows = [row for piece in planned.pieces for batch in arrow(store).messages(piece) for row in batch.to_pylist()]
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows), "a message came twice"
    return found


def as_row(message: tampu.Message) -> dict[str, Any]:
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


def all_rows(store: tampu.Store, ids: list[str]) -> dict[str, dict[str, Any]]:
    return {id: as_row(store.get(id)) for id in ids}


def every_state(store: tampu.Store, clock: Clock) -> list[str]:
    """Messages in every state and with every field; their ids."""
    when = datetime.fromisoformat("2026-01-31T12:00:00Z")
    made = [
        store.publish("work", {"n": 1}),
        store.publish("work", b"\xff\xfe\x00", type="raw.bytes"),
        store.publish("work", None, priority=7, headers={"trace": "1"}, labels={"city": "Cusco", "é": "ü"}),
        store.publish("work", "text", deadline=when, correlation_id="c", causation_id="d", parent_id="p", source="s"),
        store.publish("work", [1], key="k", idempotency_key="i", max_attempts=2, id=OWN + "1"),
        store.publish("work", b"5", type="t" * 40, content_type="application/" + "x" * 40),
    ]
    for lease in store.claim("work", limit=2, worker="w"):
        store.ack(lease, {"sum": 3, "list": [1, None]})
    store.nack(store.claim("work")[0], "first\nsecond line", delay=0)
    store.nack(store.claim("work")[0], ValueError("later"), delay=60)
    store.reject(store.claim("work")[0], "unrecoverable", "bad 17")
    made.append(store.publish("held", {}, hold="review", delay=5))
    made.append(store.publish("late", {}, delay=3600, group="g"))
    made.append(store.publish("gone", {}, id=OWN + "2"))
    store.cancel(made[-1].id)
    made.append(store.publish("old", {}, ttl=1))
    clock.at += 2 * SECOND
    made.extend(store.publish_many("many", [{"n": n} for n in range(20)]))
    store.claim("many", limit=3)
    store.claim("old")
    return [message.id for message in made]


def test_every_message_is_read_as_the_library_tells_of_it(store, clock, monkeypatch):
    ids = every_state(store, clock)
    expected = all_rows(store, ids)
    assert {row["state"] for row in expected.values()} == {state.value for state in tampu.State}
    planned = plan(store)
    assert planned.position == store.journal(limit=1).latest
    assert read(store, planned) == expected
    small_pieces(monkeypatch, 1, 2)
    planned = plan(store, pieces=7)
    assert len(planned.pieces) > 4
    assert read(store, planned) == expected


def test_an_empty_file_has_no_pieces(store):
    assert list(plan(store).pieces) == []
    store.publish("work", 1)
    assert list(plan(store, queues=("other",)).pieces) == []
    assert len(read(store, plan(store))) == 1


def test_a_snapshot_stays_what_it_was_while_the_queue_goes_on(store, clock):
    ids = every_state(store, clock)
    expected = all_rows(store, ids)
    dead = next(row for row in expected.values() if row["state"] == "dead")
    planned = plan(store)
    clock.at += 7200 * SECOND
    store.replay("work", ids=[dead["id"]])
    for _ in range(3):
        for queue in ("work", "late", "many"):
            for number, lease in enumerate(store.claim(queue, limit=20)):
                if number % 2:
                    store.nack(lease, "another error", delay=0)
                else:
                    store.ack(lease, "done now")
    store.free(next(row["id"] for row in expected.values() if row["state"] == "held"))
    store.publish_many("work", [1, 2, 3])
    assert read(store, planned) == expected
    assert read(store, plan(store)) != expected


def test_a_dead_message_that_was_replayed_keeps_its_expiry_in_the_snapshot(store, clock):
    message = store.publish("work", 1, ttl=60)
    store.reject(store.claim("work")[0], "no", "why")
    clock.at += 100 * SECOND
    planned = plan(store)
    store.replay("work", ids=[message.id])
    row = read(store, planned)[message.id]
    assert (row["state"], row["expires_at"], row["last_error"]) == ("dead", message.expires_at, "why")
    assert store.get(message.id).expires_at is None


def test_a_payload_replaced_by_its_key_may_be_the_newer_one(store):
    message = store.publish("work", "old", key="k")
    planned = plan(store)
    store.publish("work", "new", key="k")
    assert read(store, planned)[message.id]["payload"] == b'"new"'


@pytest.mark.parametrize("state", ["done", "dead", "ready", "delayed"])
def test_a_message_that_was_removed_since_the_plan_is_an_error(store, state):
    store.publish_many("work", [1, 2, 3])
    if state == "delayed":
        store.publish("work", 1, delay=50)
    for lease in store.claim("work", limit=2) if state in ("done", "dead") else []:
        store.ack(lease) if state == "done" else store.reject(lease)
    planned = plan(store, states=(tampu.State(state),))
    store.purge("work", state=state)
    with pytest.raises(tampu.NotFound, match=r"removed after .*retention or a purge"):
        read(store, planned)


def test_retention_that_takes_some_of_the_ended_ones_is_an_error(store, clock):
    for _ in range(3):
        store.publish("work", 1)
        store.ack(store.claim("work")[0])
        clock.at += SECOND
    planned = plan(store)
    access.engine(store).run([Trim({}, 2 * SECOND, 1000 * SECOND, 100)])
    assert store.stats("work").counts["done"] == 1
    with pytest.raises(tampu.NotFound):
        read(store, planned)


def test_tenants_are_kept_apart(store, url):
    with opened(url, tenant="other") as other:
        mine, theirs = store.publish("work", 1, id=OWN + "1"), other.publish("work", 2, id=OWN + "1")
        plain = other.publish("work", 3)
    assert read(store, plan(store))[mine.id]["payload"] == b"1"
    assert read(store, plan(store, tenant="other")).keys() == {theirs.id, plain.id}
    assert read(store, plan(store, tenant="nobody")) == {}
    assert read(store, plan(store, ids=(plain.id,))) == {}
    assert [row["payload"] for row in read(store, plan(store, ids=(OWN + "1",))).values()] == [b"1"]
    everything = plan(store, tenant=None)
    assert sum(b.num_rows for piece in everything.pieces for b in arrow(store).messages(piece)) == 3
    assert arrow(store).by_ids("default", [plain.id, mine.id])["payload"].to_pylist() == [b"1"]


def test_a_query_leaves_only_what_it_names(store, clock):
    start = clock.at
    for second in range(6):
        store.publish("even" if second % 2 == 0 else "odd", second)
        clock.at += SECOND
    for lease in store.claim("even", limit=2):
        store.ack(lease)
        clock.at += SECOND
    rows = read(store, plan(store))

    def left(**query: Any) -> list[int]:
        return sorted(int(row["payload"]) for row in read(store, plan(store, **query)).values())

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


def test_messages_by_id_come_in_the_order_asked_for(store, clock):
    ids = every_state(store, clock)
    expected = all_rows(store, ids)
    order = [*reversed(ids), OWN + "9", ids[0]]
    found = arrow(store).by_ids("default", order)
    assert found.to_pylist() == [expected[id] for id in order if id in expected]
    assert arrow(store).by_ids("default", []).num_rows == 0


def test_batches_are_bounded_by_bytes_and_large_messages_of_others_do_not_stop_them(store, monkeypatch):
    small_batches(monkeypatch, 10_000)
    for size in (9_000, 9_000, 30_000, 10, 10):
        store.publish("mine", b"x" * size)
        store.publish("other", b"y" * 50_000)
    planned = plan(store, queues=("mine",))
    batches = [b for piece in planned.pieces for b in arrow(store).messages(piece)]
    assert len(batches) > 2
    sizes = [len(value) for batch in batches for value in batch["payload"].to_pylist()]
    assert sorted(sizes) == [10, 10, 9_000, 9_000, 30_000]


def test_another_store_is_refused(store, engine, tmp_path: Path):
    store.publish("work", 1)
    (piece,) = plan(store).pieces
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with open_store(URLS[engine](elsewhere)) as other, pytest.raises(tampu.TampuError, match="planned on"):
        list(other.messages(piece))


@pytest.mark.parametrize("seed", range(3))
def test_any_history_is_read_as_the_library_tells_of_it(store, clock, monkeypatch, seed):
    print("seed", seed)
    chance = random.Random(seed)
    small_pieces(monkeypatch, 5, 4)
    ids: list[str] = []
    for step in range(60):
        clock.at += chance.choice([0, 1, 500, SECOND])
        queue = chance.choice("abc")
        if chance.random() < 0.5:
            own = f"{OWN[:-3]}{step:04d}" if chance.random() < 0.3 else None
            ids.append(store.publish(queue, step, delay=chance.choice([None, 3]), max_attempts=2, id=own).id)
            ids.extend(m.id for m in store.publish_many(queue, range(chance.randint(1, 6))))
        for lease in store.claim(queue, limit=chance.randint(1, 6)):
            getattr(store, chance.choice(["ack", "nack", "reject", "release"]))(lease)
        if chance.random() < 0.2:
            store.cancel(chance.choice(ids))
    expected = all_rows(store, ids)
    planned = plan(store, pieces=chance.randint(1, 9))
    for lease in store.claim("a", limit=10):
        store.ack(lease)
    assert read(store, planned) == expected


def test_the_columns_are_those_of_the_source(store):
    store.publish("work", 1)
    (batch,) = [b for piece in plan(store).pieces for b in arrow(store).messages(piece)]
    assert isinstance(batch, pa.RecordBatch)
    assert batch.schema.equals(columns.MESSAGES)


def test_a_snapshot_is_what_its_position_says_while_others_work(store, url):
    """Beside a process that never rests, each message is in the state of its last transition up to the position."""
    store.publish_many("b", range(300))
    with subprocess.Popen([sys.executable, "-c", RESTLESS, url], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        planned: dict[str, SnapshotPlan] = {}
        while len(planned) < 6:
            other.stdout.readline()
            one = plan(store, pieces=3)
            planned[str(one.position)] = one
        other.kill()
    transitions = access.engine(store).journal(None, 1_000_000, None).transitions
    for one in planned.values():
        expected: dict[str, str] = {}
        for t in transitions:
            if t.offset <= one.position.get(t.partition, 0):
                expected[t.id] = str(t.state)
        assert {id: row["state"] for id, row in read(store, one).items()} == expected


RESTLESS = """
import random, sys, tampu
chance = random.Random(1)
with tampu.open(sys.argv[1], maintenance=False) as store:
    while True:
        print(flush=True)
        queue = chance.choice("ab")
        store.publish_many(queue, range(chance.randint(1, 30)))
        store.publish(queue, 1, delay=chance.choice([0, 1000]))
        for lease in store.claim(queue, limit=chance.randint(1, 40)):
            getattr(store, chance.choice(["ack", "ack", "nack", "reject", "release"]))(lease)
"""
