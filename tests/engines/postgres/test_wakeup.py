"""Wake-ups: by NOTIFY, few for many commits, and by looking where one is missed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import tampu
from tampu.broker import access
from tampu.engines.postgres import wakeup
from tests.conformance.harness import payloads, until, waits


def _wakeup(store: tampu.Store) -> Any:
    engine: Any = access.engine(store)
    return engine._wakeup


def test_others_are_woken_by_notify(url: str) -> None:
    with tampu.open(url, maintenance=False) as store, tampu.open(url, maintenance=False) as other:
        heard = threading.Event()
        listening = _wakeup(other)._on_remote_change

        def hear() -> Any:
            heard.set()
            return listening()

        _wakeup(other)._on_remote_change = hear
        engine: Any = access.engine(store)
        until(lambda: engine.readers.run(lambda db: db.row("count_listeners", _wakeup(store)._channel)[0]) == 2)
        heard.clear()
        store.publish("jobs", 1)
        assert heard.wait(60)


def test_many_commits_ring_once(url: str, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "_APART_SECONDS", 1.0)
    with tampu.open(url, maintenance=False) as store, tampu.open(url, maintenance=False) as other:
        assert _wakeup(other) is not None, "somebody listens, so it is rung"
        db.execute(f"LISTEN {_wakeup(store)._channel}")
        began = time.monotonic()
        for n in range(200):
            store.publish("jobs", n)
        rung: list[str] = []
        while not rung:
            rung += [note.payload for note in db.notifies(timeout=1)]
            assert time.monotonic() - began < 60
        assert set(rung) == {_wakeup(store)._instance}
        assert len(rung) <= 2 + time.monotonic() - began


def test_a_ring_that_is_lost_costs_a_moment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup.Wakeup, "notify", lambda _: None)
    with ThreadPoolExecutor(1) as pool, tampu.open(url) as waiter, tampu.open(url, maintenance=False) as other:
        waiting = pool.submit(waiter.claim, "jobs", wait=240)
        until(lambda: waits(waiter))
        other.publish("jobs", "hello")
        assert payloads(waiting.result(60)) == ["hello"]
