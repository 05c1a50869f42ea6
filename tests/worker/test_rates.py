"""Workers of a server that limits how much a key may do: slower, but nothing is stuck, lost or done twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.worker.leases.lease_extender import Extended, LeaseTimers, extend
from tests.servers import http
from tests.worker.crew import PATIENCE, completions, wait


def _bounded(most: int, real: Callable[..., Any], limited: tampu.RateLimited) -> Callable[..., Any]:
    """Takes so many at once."""

    def ask(items: Sequence[Any]) -> Any:
        if len(items) > most:
            raise limited
        return real(items)

    return ask


def _held(store: tampu.Store, count: int) -> list[str]:
    store.publish_many("jobs", range(count))
    return [lease.receipt for lease in store.claim("jobs", limit=count, lease=300)]


def test_more_leases_than_the_server_takes_at_once_are_extended_in_parts(
    memory: tampu.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = memory.store
    receipts = _held(store, 21)
    limited = tampu.RateLimited("too many at once")
    monkeypatch.setattr(access.verbs(store), "extend_many", _bounded(4, access.verbs(store).extend_many, limited))
    assert extend(store, receipts, 300) == Extended([], [], [])


@pytest.mark.parametrize("error", [tampu.RateLimited("slow down", retry_after=2), tampu.Unauthorized("revoked")])
def test_leases_that_the_server_refuses_to_extend_are_tried_again(
    memory: tampu.App, monkeypatch: pytest.MonkeyPatch, error: tampu.TampuError
) -> None:
    store = memory.store
    receipts = _held(store, 3)

    def refuse(_: Any) -> Any:
        raise error

    monkeypatch.setattr(access.verbs(store), "extend_many", refuse)
    assert extend(store, receipts, 300) == Extended([], [], receipts, error)


def test_who_asks_to_be_left_alone_is_asked_as_seldom_as_leases_allow() -> None:
    book = LeaseTimers(30.0)
    book.add(["a", "b"], 0.0)
    assert book.due(3.0) == ["a", "b"]
    book.retry(["b"], 3.0, 1.5)
    assert book.next() == 4.5
    assert book.due(4.5) == ["b"]  # `a` has been extended
    assert book.due(6.0) == ["a"]
    assert book.due(14.4) == []
    assert book.due(14.5) == ["b"]


def test_lease_keeper_outlives_a_server_that_refuses(memory: tampu.App, monkeypatch: pytest.MonkeyPatch) -> None:
    real, refused, go = access.verbs(memory.store).extend_many, list[int](), threading.Event()

    def refuse_first(items: Sequence[Any]) -> Any:
        if len(refused) < 3:
            refused.append(1)
            raise tampu.RateLimited("slow down", retry_after=0.01)
        go.set()
        return real(items)

    monkeypatch.setattr(access.verbs(memory.store), "extend_many", refuse_first)

    @memory.task
    def long() -> bool:
        return go.wait(PATIENCE)

    with tampu.working(memory, lease=2):
        assert long.publish().result(PATIENCE)


def test_all_work_is_done_once_at_the_rate_of_the_key(tmp_path: Path) -> None:
    """Each message is two of the key's: claimed and settled. More are claimed than may be settled at once."""
    stall = http.Server(url=str(tmp_path / "jobs.db"), maintenance=True, key_rate=200, key_burst=50)
    runs: list[int] = []
    try:
        with tampu.App(stall.url, token=stall.token) as app, tampu.open(tmp_path / "jobs.db") as store:

            @app.task
            async def noop(n: int) -> None:
                runs.append(n)

            store.publish_many("default", [noop.message(n).new for n in range(500)])
            with tampu.working(app, lease_keeper=False):
                wait(lambda: store.stats("default").done == 500)
            assert sorted(runs) == list(range(500))
            assert set(completions(store).values()) == {1}
    finally:
        stall.stop()
