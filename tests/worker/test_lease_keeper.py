"""The process that keeps leases alive: it may die too."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import tampu
from tampu.worker.leases import lease_keeper
from tampu.worker.leases.lease_keeper import HEAD, LeaseKeeperProcess
from tests.worker.crew import PATIENCE, wait
from tests.worker.nursery import ROOT


def test_killed_lease_keeper_is_started_again_and_knows_what_is_held(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    reported: list[tuple[str, str]] = []
    heard = threading.Event()

    def tell(receipts: Sequence[str], why: str) -> None:
        reported.extend((receipt, why) for receipt in receipts)
        if reported:
            heard.set()

    with tampu.open(path) as store:
        message = store.publish("jobs", 1)
        (lease,) = store.claim("jobs", lease=300)
        keeper = LeaseKeeperProcess({"url": path, "options": {}}, 3.0, None, tell)
        try:
            keeper.add([lease.receipt])
            first = keeper.pid
            os.kill(first, signal.SIGKILL)
            wait(lambda: keeper.pid != first)
            store.cancel(message.id)  # whoever extends the lease learns of it
            assert heard.wait(PATIENCE)
        finally:
            keeper.close()
    assert set(reported) == {(lease.receipt, "cancelled")}


def test_lease_keeper_ends_with_a_worker_that_was_killed_before_it_had_read_all(tmp_path: Path) -> None:
    """Else it would keep the leases of the dead."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tampu.worker.leases.lease_keeper_process"], cwd=ROOT, stdin=theirs.fileno()
        )
    hello = {"url": str(tmp_path / "jobs.db"), "options": {}, "lease": 3.0, "patience": None, "pid": os.getpid()}
    raw = msgspec.msgpack.encode(hello)
    with ours:
        ours.sendall(HEAD.pack(len(raw)) + raw)
        assert select.select([ours], [], [], PATIENCE)[0]  # it has something to say, which nobody reads
    try:
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()


def test_lease_keeper_that_cannot_start_is_started_again_with_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(lease_keeper, "_STABLE_SECONDS", 3600.0)  # a busy machine takes long to fail
    monkeypatch.setattr(lease_keeper, "_START_SECONDS", 3600.0)
    pauses, four = list[float](), threading.Event()
    pause = LeaseKeeperProcess._pause

    def pause_and_count(keeper: LeaseKeeperProcess) -> float:
        pauses.append(pause(keeper))
        if len(pauses) == 4:
            four.set()
            keeper._up.set()  # as if it was there: it is not waited for any more
        return 0.0

    monkeypatch.setattr(LeaseKeeperProcess, "_pause", pause_and_count)
    keeper = LeaseKeeperProcess({"url": str(tmp_path / "jobs.db"), "options": {}}, 3.0, None, lambda *_: None)
    keeper.close()
    assert four.is_set()
    assert pauses[:4] == [0.0, 0.5, 1.0, 2.0]
