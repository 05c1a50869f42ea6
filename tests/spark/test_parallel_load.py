"""Steps of a job beside each other on PostgreSQL: seen in their order, none twice, whatever dies. No Spark here."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import tampu
from tampu.engines.port import DeleteDocument
from tampu.engines.postgres.wire import Wire
from tampu.model.errors import Unavailable
from tampu.spark.write import staging
from tampu.stores.sql.parallel_load import ParallelLoad
from tests.servers import pgbouncer, postgres
from tests.spark.engines import URLS
from tests.spark.test_write_once import payloads, texts
from tests.spark.writer_driver import Died, WriteTasks, batch_writer, write_tasks

ROWS = 65
SECONDS = 120
"""More than enough for anything that happens at all."""


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    pooled = getattr(request, "param", "") == "pgbouncer"
    return pgbouncer.databases.url() if pooled else URLS["postgres"](tmp_path)


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch, store: tampu.Store) -> Iterator[WriteTasks]:
    """Steps of ten rows, in a queue that is there already."""
    monkeypatch.setattr(staging, "MOST_ROWS", 10)
    store.queues.put("jobs")
    made = write_tasks(monkeypatch)
    yield made
    made.close()


def journaled(store: tampu.Store) -> list[str]:
    return [entry.id for entry in store.journal(limit=1000).transitions if entry.verb == "publish"]


@pytest.mark.parametrize("url", ["postgres", "pgbouncer"], indirect=True)
def test_steps_are_seen_in_their_order_though_a_later_one_has_written_first(
    url: str, store: tampu.Store, tasks: WriteTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, real = batch_writer(url), ParallelLoad._load
    second = threading.Event()
    seen: list[int] = []

    def load(self: ParallelLoad, commit: Any, call: Any, *rest: Any, **more: Any) -> int:
        assert commit.db.ours == (f":{postgres.databases.server.port}/" in url), "another session for each step"
        if call.numbers[0] == 0:
            assert second.wait(SECONDS)
            seen.append(len(payloads(store)))
        stored = real(self, commit, call, *rest, **more)
        if call.numbers[0] == 10:
            second.set()
        return stored

    monkeypatch.setattr(ParallelLoad, "_load", load)
    writer.commit([tasks.write(writer, texts(ROWS))])
    messages = store.messages("jobs", limit=1000)
    assert seen == [0], "nothing of the second step before the first"
    assert [message.payload for message in messages] == texts(ROWS)
    assert journaled(store) == [message.id for message in messages]
    assert store.stats("jobs").counts[tampu.State.READY] == ROWS


@pytest.mark.parametrize("where", ["statement", "rows"])
def test_a_job_that_dies_in_any_step_has_stored_its_first_rows_and_goes_on_from_there(
    url: str, store: tampu.Store, tasks: WriteTasks, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    left = -1

    def dying(verb: Any) -> Any:
        def call(*args: Any) -> Any:
            nonlocal left
            if threading.current_thread().name.startswith("tampu-load"):
                left -= 1
                if left == 0:
                    raise Died
            return verb(*args)

        return call

    if where == "statement":
        monkeypatch.setattr(Wire, "send", dying(Wire.send))
    else:
        monkeypatch.setattr(ParallelLoad, "_copy", dying(ParallelLoad._copy))
    lived, partly = False, 0
    for nth in range(1, 200, 3 if where == "statement" else 1):
        store.queues.put(f"jobs-{nth}")
        writer = batch_writer(url, jobId=f"job-{nth}", queue=f"jobs-{nth}")
        parts = [tasks.write(writer, texts(ROWS)[:35], 0), tasks.write(writer, texts(ROWS)[35:], 1)]
        left = nth
        try:
            writer.commit(list(parts))
            lived = True
        except Died:
            stored = payloads(store, f"jobs-{nth}")
            assert stored == texts(len(stored))
            partly += 0 < len(stored) < ROWS
        left = -1
        writer.commit(list(parts))
        assert payloads(store, f"jobs-{nth}") == texts(ROWS)
        if lived:
            break
    assert lived
    assert partly


@pytest.mark.parametrize("url", ["postgres", "pgbouncer"], indirect=True)
def test_rows_that_are_there_already_are_passed_over(url: str, store: tampu.Store, tasks: WriteTasks) -> None:
    tasks.write(batch_writer(url, jobId="j", onCommit="false"), texts(25))
    writer = batch_writer(url, jobId="j")
    writer.commit([tasks.write(writer, texts(40))])
    assert sorted(payloads(store), key=int) == texts(40)
    assert len(journaled(store)) == 40


def test_staged_rows_that_cannot_be_read_leave_what_came_before(
    url: str, store: tampu.Store, tasks: WriteTasks
) -> None:
    writer = batch_writer(url, jobId="j")
    part = tasks.write(writer, texts(ROWS))
    name = str(part.part.where).rpartition("/")[0]
    tasks.stores[url].run([DeleteDocument(staging.STAGED_ROWS, "default", f"{name}/4")])
    with pytest.raises(tampu.StorageError, match="cannot read what a task staged") as caught:
        writer.commit([part])
    assert payloads(store) == texts(30)
    assert "30 of 65 rows are published" in str(caught.value.hint)


def test_a_session_that_the_server_ends_fails_the_job_and_it_goes_on_later(
    url: str, store: tampu.Store, tasks: WriteTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, real = batch_writer(url, jobId="j"), ParallelLoad._load
    cut: list[int] = []

    def load(self: ParallelLoad, commit: Any, call: Any, *rest: Any, **more: Any) -> int:
        if call.numbers[0] == 30 and not cut:
            cut.append(commit.db.connection.info.backend_pid)
            with store.transaction() as tx:
                tx.execute("SELECT pg_terminate_backend(%s)", (cut[0],))
        return real(self, commit, call, *rest, **more)

    monkeypatch.setattr(ParallelLoad, "_load", load)
    part = tasks.write(writer, texts(ROWS))
    with pytest.raises(tampu.Unavailable):
        writer.commit([part])
    assert payloads(store) == texts(30)
    writer.commit([part])
    assert payloads(store) == texts(ROWS)


def test_a_job_without_an_id_is_gone_on_with_under_the_one_that_its_error_names(
    url: str, store: tampu.Store, tasks: WriteTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages have ids as any other, so what is published already is known by the progress record alone."""
    writer, real = batch_writer(url), ParallelLoad._load

    def load(self: ParallelLoad, commit: Any, call: Any, *rest: Any, **more: Any) -> int:
        if call.numbers[0] == 30:
            raise Unavailable("the network is down")
        return real(self, commit, call, *rest, **more)

    part = tasks.write(writer, texts(ROWS))
    with monkeypatch.context() as patch:
        patch.setattr(ParallelLoad, "_load", load)
        with pytest.raises(tampu.Unavailable) as caught:
            writer.commit([part])
    assert payloads(store) == texts(30)
    said = re.search(r"jobId=(\S+) continues from there", str(caught.value.hint))
    assert said
    batch_writer(url, jobId=said[1]).commit([part])
    messages = store.messages("jobs", limit=1000)
    assert [message.payload for message in messages] == texts(ROWS)
    assert [UUID(message.id).version for message in messages] == [7] * 30 + [8] * 35
    assert journaled(store) == [message.id for message in messages]
    assert [store.get(message.id).payload for message in messages] == texts(ROWS)
