"""Whatever dies while a DataFrame is written: no message is doubled and none is lost. No Spark here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import tampu
from tampu.engines.port import PutDocument
from tampu.spark import publishing, staging
from tests.spark.hands import Died, Hands, Reaper, batch_writer, hands


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Hands:
    monkeypatch.setattr(staging, "MOST_ROWS", 10)
    return hands(monkeypatch)


def payloads(q: tampu.Queue, queue: str = "jobs") -> list[Any]:
    return [message.payload for message in q.messages(queue, limit=1000)] if queue in q.queues.list() else []


def texts(count: int, start: int = 0) -> list[str]:
    return [str(n) for n in range(start, start + count)]


@pytest.mark.parametrize("atomic", ["false", "true"])
def test_a_driver_that_dies_at_any_step_can_be_run_again(
    url: str, q: tampu.Queue, tasks: Hands, monkeypatch: pytest.MonkeyPatch, atomic: str
) -> None:
    reaper = Reaper(monkeypatch)
    expected, lived, nth = texts(25) + texts(12, 100), False, 0
    for nth in range(200):
        queue = f"jobs-{nth}"
        for chance in (nth, -1):
            writer = batch_writer(url, jobId=f"job-{nth}", queue=queue, atomic=atomic)
            reaper.left = -1
            staged = [tasks.write(writer, expected[:25], 0), tasks.write(writer, expected[25:], 2)]
            reaper.left = chance
            try:
                writer.commit(list(staged))
                lived = chance == nth
                break
            except Died:
                reaper.left = -1
                if atomic == "true":
                    assert payloads(q, queue) in ([], expected)
                writer.abort(list(staged))
        assert payloads(q, queue) == expected
        if lived:
            break
    assert lived
    assert nth > 10
    assert not Path(f"{url}-stage").exists()
    transitions = q.journal(limit=10_000).transitions
    assert len({t.id for t in transitions}) == len(transitions) == 37 * (nth + 1)


def test_only_the_winning_attempt_of_a_partition_counts(url: str, q: tampu.Queue, tasks: Hands) -> None:
    writer = batch_writer(url)
    tasks.write(writer, texts(30), 1)
    first, loser, winner = (tasks.write(writer, texts(n), p) for n, p in ((15, 0), (3, 1), (30, 1)))
    assert loser.part.path != winner.part.path
    writer.commit([winner, first])
    assert payloads(q) == texts(15) + texts(30)
    assert not Path(f"{url}-stage").exists()


def test_tasks_that_publish_by_themselves_publish_nothing_twice(url: str, q: tampu.Queue, tasks: Hands) -> None:
    writer = batch_writer(url, onCommit="false", jobId="j")
    one = tasks.write(writer, texts(15), 0)
    assert payloads(q) == texts(15)
    again = tasks.write(writer, texts(25), 0)
    other = tasks.write(writer, texts(5), 1)
    assert payloads(q) == texts(25) + texts(5)
    writer.commit([again, other])
    assert one.part.path is None
    for lease in q.claim("jobs", limit=100):
        q.ack(lease)
    late = batch_writer(url, onCommit="false", jobId="j")
    late.commit([tasks.write(late, texts(500), 0)])
    assert q.stats("jobs").counts["ready"] == 0
    with pytest.raises(tampu.InvalidMessage, match="1 of 2 rows can not be messages: partition 0 row 1"):
        tasks.write(batch_writer(url, onCommit="false"), ["a", None], 0)
    assert q.stats("jobs").counts["ready"] == 0


def test_two_drivers_with_one_job_publish_it_once(
    url: str, q: tampu.Queue, tasks: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = batch_writer(url, jobId="j"), batch_writer(url, jobId="j")
    of_slow, of_fast = tasks.write(slow, texts(25)), tasks.write(fast, texts(25))
    store_chunk = publishing.Publisher._store_chunk
    calls: list[int] = []

    def overtaken(self: publishing.Publisher, run: Any, chunk: Any) -> int:
        """The slow driver stops after its first chunk until the fast one is through."""
        calls.append(1)
        if len(calls) == 2:
            raise Died
        return store_chunk(self, run, chunk)

    with monkeypatch.context() as patch:
        patch.setattr(publishing.Publisher, "_store_chunk", overtaken)
        with pytest.raises(Died):
            slow.commit([of_slow])
        fast.commit([of_fast])
    with monkeypatch.context() as patch:
        patch.setattr(publishing.Publisher, "entry", lambda self: (None, 0))
        with pytest.raises(tampu.InvalidState, match="another driver"):
            slow.commit([of_slow])
    assert payloads(q) == texts(25)


def test_a_queue_that_fills_up_in_the_middle_says_how_to_go_on(
    url: str, q: tampu.Queue, tasks: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    q.queues.put("jobs", max_depth=15)
    writer = batch_writer(url)
    with pytest.raises(tampu.QueueFull, match="no room for 25"):
        writer.commit([tasks.write(writer, texts(25))])
    assert payloads(q) == []
    with monkeypatch.context() as patch:
        patch.setattr(publishing.Publisher, "check_room", lambda *_: None)  # there was room when it looked
        with pytest.raises(tampu.QueueFull, match=f"10 of 25 rows are published; jobId={writer.job.name} goes on"):
            writer.commit([tasks.write(writer, texts(25))])
    assert payloads(q) == texts(10)
    q.queues.put("jobs", max_depth=0)
    again = batch_writer(url, jobId=writer.job.name)
    again.commit([tasks.write(again, texts(25))])
    assert payloads(q) == texts(25)


def test_a_closed_queue_refuses_before_anything_is_published(url: str, q: tampu.Queue, tasks: Hands) -> None:
    writer = batch_writer(url)
    staged = tasks.write(writer, texts(25))
    for status in ("draining", "closed"):
        q.queues.put("jobs", status=status)
        with pytest.raises(tampu.QueueClosed, match=f"queue jobs is {status}"):
            writer.commit([staged])
        with pytest.raises(tampu.QueueClosed):
            tasks.write(batch_writer(url, onCommit="false"), texts(3))
    assert payloads(q) == []


def test_a_job_with_other_rows_is_not_taken_for_the_one_that_was_done(url: str, q: tampu.Queue, tasks: Hands) -> None:
    for rows, partition in ((3, 0), (4, 0), (3, 1)):
        writer = batch_writer(url, jobId="j")
        staged = tasks.write(writer, texts(rows), partition)
        if (rows, partition) == (3, 0):
            writer.commit([staged])
        else:
            with pytest.raises(tampu.InvalidState, match="begun with other rows or partitions"):
                writer.commit([staged])
    assert payloads(q) == texts(3)


def test_entries_of_jobs_are_kept_for_those_who_may_ask(url: str, q: tampu.Queue, tasks: Hands) -> None:
    named, nameless = batch_writer(url, jobId="j"), batch_writer(url)
    for writer in (named, nameless):
        writer.commit([tasks.write(writer, texts(3))])
    engine = q._core.engine
    (entry,) = engine.documents(publishing.JOBS, "default")
    assert entry.name == "j"
    old = publishing.Entry("x", 1, engine.now() - publishing._KEPT_US - 1, done=True)
    engine.run([PutDocument(publishing.JOBS, "default", "old", msgspec.json.encode(old))])
    writer = batch_writer(url)
    writer.commit([tasks.write(writer, texts(3))])
    assert [document.name for document in engine.documents(publishing.JOBS, "default")] == ["j"]


def test_what_dead_writers_staged_is_removed_a_day_later(url: str, q: tampu.Queue, tasks: Hands) -> None:
    dead, dying, alive = (batch_writer(url) for _ in range(3))
    left = [tasks.write(writer, texts(3)) for writer in (dead, dying)]
    day_old = Path(left[0].folder)
    for entry in (*day_old.iterdir(), day_old):
        os.utime(entry, (1, 1))
    alive.commit([tasks.write(alive, texts(3))])
    assert [str(folder) for folder in Path(f"{url}-stage").iterdir()] == [left[1].folder]
    dying.abort([left[1], None])
    assert not Path(f"{url}-stage").exists()


def test_staged_rows_that_are_gone_fail_the_job(url: str, q: tampu.Queue, tasks: Hands) -> None:
    writer = batch_writer(url)
    staged = tasks.write(writer, texts(3))
    staging.remove(Path(staged.folder))
    with pytest.raises(tampu.StorageError, match="can not be read"):
        writer.commit([staged])
    assert payloads(q) == []


def test_batches_are_cut_by_rows_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MOST_BYTES", 100)
    bodies = [b"x" * n for n in (30, 30, 30, 30, 200, 1, 1)]
    batch = pa.record_batch([pa.array(bodies)], names=["body"])
    assert [len(piece) for piece in staging.pieces(batch)] == [3, 1, 1, 2]
    monkeypatch.setattr(staging, "MOST_ROWS", 2)
    assert [len(piece) for piece in staging.pieces(batch)] == [2, 2, 1, 2]
