"""Whatever dies while a DataFrame is written: no message is doubled and none is lost. No Spark here."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import tampu
from tampu.broker import access, verbs
from tampu.engines.port import PutDocument
from tampu.spark.write import publish, staging
from tampu.spark.write.writer import BatchWriter
from tests.servers.redis import until
from tests.spark.engines import store_for
from tests.spark.writer_driver import (
    TEXT,
    Died,
    Reaper,
    WriteTasks,
    batch_writer,
    joint,
    make_old,
    staged,
    unstage,
    write_tasks,
)


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteTasks]:
    monkeypatch.setattr(staging, "MOST_ROWS", 10)
    made = write_tasks(monkeypatch)
    yield made
    made.close()


def payloads(store: tampu.Store, queue: str = "jobs") -> list[Any]:
    return [message.payload for message in store.messages(queue, limit=1000)] if queue in store.queues.list() else []


def texts(count: int, start: int = 0) -> list[str]:
    return [str(n) for n in range(start, start + count)]


@pytest.mark.parametrize("atomic", ["false", "true"])
def test_a_driver_that_dies_at_any_step_can_be_run_again(
    url: str, store: tampu.Store, engine: str, tasks: WriteTasks, monkeypatch: pytest.MonkeyPatch, atomic: str
) -> None:
    reaper = Reaper(monkeypatch, url)
    expected, lived, nth = texts(15) + texts(7, 100), False, 0
    if atomic == "true" and not joint(url):
        with pytest.raises(tampu.InvalidConfig, match="a whole job in one commit"):
            tasks.write(batch_writer(url, atomic=atomic), expected)
        return
    for nth in range(200):
        queue = f"jobs-{nth}"
        for chance in (nth, -1):
            writer = batch_writer(url, jobId=f"job-{nth}", queue=queue, atomic=atomic)
            reaper.left = -1
            done = [tasks.write(writer, expected[:15], 0), tasks.write(writer, expected[15:], 2)]
            reaper.left = chance
            try:
                writer.commit(list(done))
                lived = chance == nth
                break
            except Died:
                reaper.left = -1
                if atomic == "true":
                    assert payloads(store, queue) in ([], expected)
                writer.abort(list(done))
        assert payloads(store, queue) == expected
        if lived:
            break
    assert lived
    assert nth > 10
    assert staged(url) == []
    transitions = store.journal(limit=10_000).transitions
    assert len({t.id for t in transitions}) == len(transitions) == 22 * (nth + 1)


def test_who_waits_for_messages_is_woken_by_a_job(
    url: str, store: tampu.Store, tasks: WriteTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "_UNWATCHED_LOOK", 600.0)
    store.queues.put("jobs")
    writer = batch_writer(url)
    part = tasks.write(writer, texts(25))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.claim, "jobs", wait=600)
        until(lambda: access.core(store).waiting.anybody, "somebody who waits")
        writer.commit([part])
        try:
            assert [lease.payload for lease in waiting.result(120)] == ["0"]
        finally:
            store.publish("jobs", "of this process: heard in any case")


@pytest.mark.parametrize("column", ["payload", "key"])
def test_rows_that_are_worked_and_gone_before_the_job_is_run_again_are_not_published_again(
    url: str, store: tampu.Store, tasks: WriteTasks, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    """Plain rows, and rows with a key: they are stored in two ways."""
    reaper = Reaper(monkeypatch, url)
    expected = texts(22)
    schema = TEXT if column == "payload" else StructType([*TEXT, StructField("key", StringType())])

    def write(writer: BatchWriter) -> list[Any]:
        if column == "payload":
            return [tasks.write(writer, expected)]
        rows = pa.record_batch([pa.array(expected), pa.array(expected)], names=["payload", "key"])
        return [tasks.write_batches(writer, [rows.slice(0, 10), rows.slice(10, 10), rows.slice(20)])]

    for nth in range(100):
        for chance in (nth, -1):
            reaper.left = -1
            writer = batch_writer(url, schema, jobId=f"job-{nth}", queue=f"jobs-{nth}")
            done = write(writer)
            reaper.left = chance
            try:
                writer.commit(done)
                break
            except Died:
                reaper.left = -1
            # All that is there is worked, and retention takes it, before somebody runs the job again.
            for lease in store.claim(f"jobs-{nth}", limit=100):
                store.ack(lease)
            if f"jobs-{nth}" in store.queues.list():
                store.purge(f"jobs-{nth}", state="done")
        if chance == nth:
            break
    published = [t for t in store.journal(limit=100_000).transitions if t.verb == "publish"]
    assert len({t.id for t in published}) == len(published) == 22 * (nth + 1)
    assert nth > 10


def test_only_the_winning_attempt_of_a_partition_counts(url: str, store: tampu.Store, tasks: WriteTasks) -> None:
    writer = batch_writer(url)
    tasks.write(writer, texts(30), 1)
    first, loser, winner = (tasks.write(writer, texts(n), p) for n, p in ((15, 0), (3, 1), (30, 1)))
    assert loser.part.where != winner.part.where
    writer.commit([winner, first])
    assert payloads(store) == texts(15) + texts(30)
    assert staged(url) == []


def test_tasks_that_publish_by_themselves_publish_nothing_twice(
    url: str, store: tampu.Store, tasks: WriteTasks
) -> None:
    writer = batch_writer(url, onCommit="false", jobId="j")
    one = tasks.write(writer, texts(15), 0)
    assert payloads(store) == texts(15)
    again = tasks.write(writer, texts(25), 0)
    other = tasks.write(writer, texts(5), 1)
    assert payloads(store) == texts(25) + texts(5)
    writer.commit([again, other])
    assert one.part.where is None
    for lease in store.claim("jobs", limit=100):
        store.ack(lease)
    late = batch_writer(url, onCommit="false", jobId="j")
    late.commit([tasks.write(late, texts(500), 0)])
    assert store.stats("jobs").counts["ready"] == 0
    with pytest.raises(tampu.InvalidMessage, match="1 of 2 rows cannot become messages: partition 0 row 1"):
        tasks.write(batch_writer(url, onCommit="false"), ["a", None], 0)
    assert store.stats("jobs").counts["ready"] == 0


def test_two_drivers_with_one_job_publish_it_once(
    url: str, store: tampu.Store, tasks: WriteTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = batch_writer(url, jobId="j"), batch_writer(url, jobId="j")
    of_slow, of_fast = tasks.write(slow, texts(25)), tasks.write(fast, texts(25))
    real = publish.Publisher.calls
    chunks: list[int] = []

    def overtaken(self: publish.Publisher, partition: int, batch: Any, **more: Any) -> Any:
        """The slow driver stops after its first chunk until the fast one is through."""
        chunks.append(1)
        if len(chunks) == 2:
            raise Died
        return real(self, partition, batch, **more)

    with monkeypatch.context() as patch:
        patch.setattr(publish.Publisher, "calls", overtaken)
        with pytest.raises(Died):
            slow.commit([of_slow])
        fast.commit([of_fast])
    with monkeypatch.context() as patch:
        patch.setattr(publish.Publisher, "entry", lambda self: (None, 0))
        with pytest.raises(tampu.InvalidState, match="another driver"):
            slow.commit([of_slow])
    assert payloads(store) == texts(25)


def test_a_queue_that_fills_up_in_the_middle_says_how_to_go_on(
    url: str, store: tampu.Store, tasks: WriteTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.queues.put("jobs", max_depth=15)
    writer = batch_writer(url)
    with pytest.raises(tampu.QueueFull, match="25 more do not fit"):
        writer.commit([tasks.write(writer, texts(25))])
    assert payloads(store) == []
    with monkeypatch.context() as patch:
        patch.setattr(publish.Publisher, "check_room", lambda *_: None)  # there was room when it looked
        with pytest.raises(tampu.QueueFull, match=f"10 of 25 rows are published; jobId={writer.job.name} continues"):
            writer.commit([tasks.write(writer, texts(25))])
    assert payloads(store) == texts(10)
    store.queues.put("jobs", max_depth=0)
    again = batch_writer(url, jobId=writer.job.name)
    again.commit([tasks.write(again, texts(25))])
    assert payloads(store) == texts(25)


def test_a_closed_queue_refuses_before_anything_is_published(url: str, store: tampu.Store, tasks: WriteTasks) -> None:
    writer = batch_writer(url)
    done = tasks.write(writer, texts(25))
    for status in ("draining", "closed"):
        store.queues.put("jobs", status=status)
        with pytest.raises(tampu.QueueClosed, match=f"queue jobs is {status}"):
            writer.commit([done])
        with pytest.raises(tampu.QueueClosed):
            tasks.write(batch_writer(url, onCommit="false"), texts(3))
    assert payloads(store) == []


def test_a_job_with_other_rows_is_not_taken_for_the_one_that_was_done(
    url: str, store: tampu.Store, tasks: WriteTasks
) -> None:
    for rows, partition in ((3, 0), (4, 0), (3, 1)):
        writer = batch_writer(url, jobId="j")
        done = tasks.write(writer, texts(rows), partition)
        if (rows, partition) == (3, 0):
            writer.commit([done])
        else:
            with pytest.raises(tampu.InvalidState, match="began with other rows or partitions"):
                writer.commit([done])
    assert payloads(store) == texts(3)


def test_entries_of_jobs_are_kept_for_those_who_may_ask(url: str, store: tampu.Store, tasks: WriteTasks) -> None:
    named, nameless = batch_writer(url, jobId="j"), batch_writer(url)
    for writer in (named, nameless):
        writer.commit([tasks.write(writer, texts(3))])
    arrow = store_for(store).within("jobs")
    (entry,) = arrow.documents(publish.JOBS, "default")
    assert entry.name == "j"
    old = publish.Entry("x", 1, arrow.now() - publish.KEPT_US - 1, done=True)
    arrow.run([PutDocument(publish.JOBS, "default", "old", msgspec.json.encode(old))])
    writer = batch_writer(url)
    writer.commit([tasks.write(writer, texts(3))])
    assert [document.name for document in arrow.documents(publish.JOBS, "default")] == ["j"]


def test_what_dead_writers_staged_is_removed_a_day_later(url: str, store: tampu.Store, tasks: WriteTasks) -> None:
    dead, dying, alive = (batch_writer(url) for _ in range(3))
    left = [tasks.write(writer, texts(3)) for writer in (dead, dying)]
    make_old(url, left[0].folder)
    alive.commit([tasks.write(alive, texts(3))])
    assert staged(url) == [left[1].folder]
    dying.abort([left[1], None])
    assert staged(url) == []


def test_staged_rows_that_are_gone_fail_the_job(url: str, store: tampu.Store, tasks: WriteTasks) -> None:
    writer = batch_writer(url)
    gone = tasks.write(writer, texts(3))
    unstage(url, gone.folder)
    with pytest.raises(tampu.StorageError, match="cannot read what a task staged"):
        writer.commit([gone])
    assert payloads(store) == []


def test_batches_are_cut_by_rows_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MOST_BYTES", 100)
    bodies = [b"x" * n for n in (30, 30, 30, 30, 200, 1, 1)]
    batch = pa.record_batch([pa.array(bodies)], names=["body"])
    assert [len(piece) for piece in staging.pieces(batch)] == [3, 1, 1, 2]
    monkeypatch.setattr(staging, "MOST_ROWS", 2)
    assert [len(piece) for piece in staging.pieces(batch)] == [2, 2, 1, 2]
