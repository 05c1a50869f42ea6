"""A store that moves while people publish and work in it: what was acknowledged is there, once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.broker.transfer import Move, TransferOptions
from tampu.engines.port import Call, Engine, Publish, QueueStats
from tampu.engines.transfer import Import
from tests.broker.transfer.stores import ROUND, URLS, opened
from tests.conformance.harness import until


@pytest.fixture(autouse=True)
def noticed() -> None:
    """When settings are noticed by those who work: within a second."""


class Publisher:
    """Publishes until the store is closed, and notes what was acknowledged."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.ids: list[str] = []

    def run(self) -> None:
        with tampu.open(self._url, maintenance=False) as store:
            while True:
                try:
                    self.ids.append(store.publish("jobs", len(self.ids)).id)
                except tampu.QueueClosed:
                    return


class Worker:
    """A worker that stops when the store was moved, and records what it did."""

    def __init__(self, url: str, moved: threading.Event) -> None:
        self._url = url
        self._moved = moved
        self.ids: list[str] = []

    def run(self) -> None:
        with tampu.open(self._url, maintenance=False) as store:
            last = False
            while not last:
                last = self._moved.is_set()  # and once more, when all is over
                for lease in store.claim("jobs", limit=3):
                    store.ack(lease)
                    self.ids.append(lease.id)


@pytest.mark.parametrize(("old", "new"), ROUND)
def test_nothing_is_lost_or_in_both_stores(old: str, new: str, tmp_path: Path) -> None:
    source, target = URLS[old](tmp_path), URLS[new](tmp_path)
    moved = threading.Event()
    publisher, worker = Publisher(source), Worker(source, moved)
    with opened(source, target, clock=None) as (here, there), ThreadPoolExecutor(2) as pool:
        running = [pool.submit(publisher.run), pool.submit(worker.run)]
        try:
            until(lambda: len(publisher.ids) > 20 and len(worker.ids) > 5)
            Move(here, there, TransferOptions(wait_seconds=60), origin="old", goal="new").run()
        finally:
            moved.set()
        for one in running:
            one.result(60)
    with tampu.open(target, maintenance=False) as store:
        came = [lease.id for part in iter(lambda: store.claim("jobs", limit=1000, lease=3600), []) for lease in part]
    assert sorted([*worker.ids, *came]) == sorted(publisher.ids)


class Late:
    """A target; when it is counted at the end, somebody publishes to the source once more."""

    def __init__(self, engine: Engine, source: Engine, publish: Publish) -> None:
        self._engine = engine
        self._source = source
        self._publish = publish
        self._came = False

    def run(self, calls: Sequence[Call]) -> list[Any]:
        self._came = self._came or any(isinstance(call, Import) for call in calls)
        return self._engine.run(calls)

    def stats(self, tenant: str, queue: str | None) -> list[QueueStats]:
        if self._came:
            self._source.run([self._publish])
        return self._engine.stats(tenant, queue)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def test_what_comes_at_the_last_moment_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = URLS["file"](tmp_path), URLS["file"](tmp_path)
    asked: list[Call] = []
    with opened(source, target, clock=None) as (here, there):
        with tampu.open(source, maintenance=False) as store:
            run = access.engine(store).run

            def note(calls: Sequence[Call]) -> list[Any]:
                asked.extend(calls)
                return run(calls)

            monkeypatch.setattr(access.engine(store), "run", note)
            store.publish("jobs", 1)
        publish = asked[-1]
        assert isinstance(publish, Publish)
        late: Any = Late(there, here, publish)
        with pytest.raises(tampu.InvalidState, match="still arrive in default/jobs"):
            Move(here, late, TransferOptions(), origin="old", goal="new").run()
        assert Move(here, there, TransferOptions(), origin="old", goal="new").run().stored == 1
    with tampu.open(target, maintenance=False) as store:
        assert [lease.payload for lease in store.claim("jobs", limit=5)] == [1, 1]
