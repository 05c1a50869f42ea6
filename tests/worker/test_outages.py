"""A store that goes away while tasks run, and comes back: the worker waits for it, and says so."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.client.request import Request
from tampu.engines.sql import engine, read_pool
from tampu.worker.prefetch import Prefetch
from tests.servers import http
from tests.servers.ports import free_port
from tests.servers.postgres import Postgres
from tests.servers.redis import DURABLE, Server, redis_binary
from tests.worker.crew import completions, wait

Place = tuple[str, str | None, Callable[[], Any], Callable[[], Any]]
"""(url, token, how it goes away, how it comes back)"""


@contextlib.contextmanager
def _redis(_folder: Path) -> Iterator[Place]:
    server = Server(redis_binary(), DURABLE).start()
    try:
        yield server.url(), None, server.kill, server.start
    finally:
        server.remove()


@contextlib.contextmanager
def _postgres(_folder: Path) -> Iterator[Place]:
    with Postgres() as server:
        yield server.url(), None, server.kill, server.start


@contextlib.contextmanager
def _http(folder: Path) -> Iterator[Place]:
    port = free_port()
    stalls = [http.Server(url=str(folder / "jobs.db"), port=port, maintenance=True)]

    def start() -> None:
        stalls.append(http.Server(url=str(folder / "jobs.db"), port=port, maintenance=True))

    try:
        yield stalls[0].url, stalls[0].token, stalls[0].stop, start
    finally:
        stalls[-1].stop()


def _let_stores_give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """They try for up to half a minute before they say that the store is gone."""
    monkeypatch.setitem(Request.__init__.__kwdefaults__ or {}, "patience", 0.5)
    for module in (engine, read_pool):
        monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.5)


@pytest.mark.parametrize("place", [_redis, _postgres, _http], ids=["redis", "postgres", "http"])
def test_worker_goes_on_when_its_store_comes_back_and_nothing_runs_twice(
    place: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _let_stores_give_up_soon(monkeypatch)
    monkeypatch.setattr(Prefetch, "to_claim", lambda _, held: 20 - held)  # no claim is under way while all of them run
    go, begun, runs = threading.Event(), threading.Semaphore(0), list[int]()
    with place(tmp_path) as (url, token, away, back), tampu.App(url, token=token) as app:

        @app.task
        def wait_for_it(n: int) -> int:
            runs.append(n)
            begun.release()
            assert go.wait(90)
            return n

        published = app.publish_many([wait_for_it.message(n) for n in range(40)])
        working = tampu.working(app, lease_keeper=False, concurrency=20, lease=300)  # longer than any outage here
        with caplog.at_level(logging.WARNING, "tampu.worker"), working:
            for _ in range(20):
                assert begun.acquire(timeout=90)
            away()
            go.set()
            wait(lambda: "the store cannot be used" in caplog.text)
            back()
            assert [one.result(90) for one in published] == list(range(40))
            wait(lambda: "the store is back" in caplog.text)
        assert sorted(runs) == list(range(40))  # what had ended meanwhile was settled, and not run again
        assert completions(app.store) == dict.fromkeys((one.id for one in published), 1)


@pytest.mark.parametrize("place", [_redis, _postgres, _http], ids=["redis", "postgres", "http"])
def test_leases_timeouts_and_progress_outlive_an_outage(
    place: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _let_stores_give_up_soon(monkeypatch)
    go, begun, runs, words = threading.Event(), threading.Semaphore(0), list[int](), ["before"]
    with place(tmp_path) as (url, token, away, back), tampu.App(url, token=token) as app:

        def tell() -> None:
            tampu.current().progress(0.5, words[-1])

        @app.task(timeout=600)
        def moves(n: int) -> int:
            runs.append(n)
            begun.release()
            while not go.wait(0.05):
                tell()
            return n

        @app.task(timeout=4, max_attempts=1)
        def late() -> None:
            begun.release()
            while True:
                tell()
                threading.Event().wait(0.05)

        published = app.publish_many([moves.message(n) for n in range(10)])
        with caplog.at_level(logging.WARNING, "tampu.worker"), tampu.working(app, concurrency=30, lease=60):
            too_late = late.publish()
            for _ in range(11):
                assert begun.acquire(timeout=90)
            away()
            wait(lambda: "the store cannot be used" in caplog.text)
            wait(lambda: f"late {too_late.id}: timed out" in caplog.text)
            back()
            words.append("after")
            wait(lambda: published[0].progress() == (0.5, "after"))
            app.store.cancel(published[9].id)
            with pytest.raises(tampu.TaskFailed, match="cancelled"):  # the lease keeper tells, when it extends
                published[9].result(90)
            go.set()
            assert [one.result(90) for one in published[:9]] == list(range(9))
            with pytest.raises(tampu.TaskFailed, match="TimedOut"):
                too_late.result(90)
        assert sorted(runs) == list(range(10))
