"""writeStream: each batch is published once, however often Spark brings it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tampu
from tampu.spark.write import publish, staging
from tests.spark.engines import store_for
from tests.spark.writer_driver import WriteTasks, staged, stream_writer, write_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteTasks]:
    monkeypatch.setattr(staging, "MOST_ROWS", 10)
    made = write_tasks(monkeypatch)
    yield made
    made.close()


def payloads(store: tampu.Store) -> list[Any]:
    return [message.payload for message in store.messages("jobs", limit=1000)] if store.queues.list() else []


def texts(count: int, start: int = 0) -> list[str]:
    return [str(n) for n in range(start, start + count)]


def bring(tasks: WriteTasks, url: str, rows: list[str], batch: int, query: str | None = "q1", **options: Any) -> None:
    """One batch, as Spark does it: a writer for the tasks, and another one for the commit."""
    done = tasks.write(stream_writer(url, **options), rows, 0, query, batch)
    stream_writer(url, **options).commit([done], batch)


@pytest.mark.parametrize("on_commit", ["true", "false"])
def test_a_batch_that_comes_again_is_published_once(
    url: str, store: tampu.Store, tasks: WriteTasks, on_commit: str
) -> None:
    options = {"onCommit": on_commit}
    bring(tasks, url, texts(15), 0, **options)
    bring(tasks, url, texts(15), 0, **options)
    bring(tasks, url, texts(15), 1, **options)
    bring(tasks, url, texts(15), 0, **options)
    bring(tasks, url, [], 2, **options)
    assert payloads(store) == texts(15) * 2
    bring(tasks, url, texts(1), 0, query="another", **options)
    assert payloads(store) == [*texts(15), *texts(15), "0"]
    assert staged(url) == []
    kept = [document.name for document in store_for(store).within("jobs").documents(publish.STREAMS, "default")]
    assert kept == ["another", "q1"]


def test_a_batch_that_died_half_way_goes_on_even_if_it_comes_with_other_rows(
    url: str, store: tampu.Store, tasks: WriteTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = publish.Publisher._chunks

    def half(self: Any, *args: Any) -> Any:
        yield next(chunks(self, *args))
        raise RuntimeError("the driver dies")

    with monkeypatch.context() as patch:
        patch.setattr(publish.Publisher, "_chunks", half)
        with pytest.raises(RuntimeError):
            bring(tasks, url, texts(25), 0)
    assert payloads(store) == texts(10)
    bring(tasks, url, texts(25), 0)
    assert payloads(store) == texts(25)
    with monkeypatch.context() as patch:
        patch.setattr(publish.Publisher, "_chunks", half)
        with pytest.raises(RuntimeError):
            bring(tasks, url, texts(25, 100), 1)
    bring(tasks, url, texts(30, 100), 1)
    assert payloads(store) == texts(25) + texts(30, 100)


def test_a_stream_of_one_name_belongs_to_one_query(url: str, store: tampu.Store, tasks: WriteTasks) -> None:
    bring(tasks, url, texts(3), 0, streamId="orders")
    with pytest.raises(tampu.InvalidState, match="written by another query"):
        bring(tasks, url, texts(3), 0, query="q2", streamId="orders")
    bring(tasks, url, texts(3, 3), 1, streamId="orders")
    assert payloads(store) == texts(6)
    with pytest.raises(tampu.InvalidConfig, match="the query has no id"):
        tasks.write(stream_writer(url), texts(1), 0, None, 0)


def test_an_aborted_batch_leaves_nothing(url: str, store: tampu.Store, tasks: WriteTasks) -> None:
    writer = stream_writer(url)
    done = tasks.write(writer, texts(3), 0, "q1", 0)
    writer.abort([done, None], 0)
    assert staged(url) == []
    assert payloads(store) == []


def test_a_query_restarted_from_its_checkpoint_replays_without_a_second_copy(
    spark: SparkSession, url: str, store: tampu.Store, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()

    def run() -> list[int]:
        query = (
            spark.readStream.format("text")
            .option("maxFilesPerTrigger", 1)
            .load(str(source))
            .selectExpr("value AS payload")
            .writeStream.format("tampu")
            .options(url=url, queue="jobs", checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return [progress["batchId"] for progress in query.recentProgress]

    (source / "a").write_text("a1\na2\n")
    run()
    assert sorted(payloads(store)) == ["a1", "a2"]
    # The driver dies when the messages are in, before Spark has noted the batch as committed.
    for note in (checkpoint / "commits").glob("*0*"):
        note.unlink()
    (source / "b").write_text("b1\n")
    assert run()[:2] == [0, 1]
    assert sorted(payloads(store)) == ["a1", "a2", "b1"]
    assert staged(url) == []
