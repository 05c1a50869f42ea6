"""The process above several workers, asked to stop at a bad moment."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tampu.worker.process import supervisor


def test_signal_that_comes_while_workers_are_started_is_passed_on_and_no_more_are_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the test sends none
    boss = supervisor.Supervisor([sys.executable, "-c", "import signal; signal.pause()"], 5)
    start, started = supervisor.Supervisor._start, list[subprocess.Popen[bytes]]()

    def start_one(self: supervisor.Supervisor, slot: supervisor._WorkerSlot) -> subprocess.Popen[bytes]:
        started.append(start(self, slot))
        if len(started) == 2:
            self._stop(signal.SIGTERM, None)  # the second one is not started yet
        return started[-1]

    monkeypatch.setattr(supervisor.Supervisor, "_start", start_one)
    try:
        assert boss.run() == 0
        assert len(started) == 2
    finally:
        for one in started:
            one.kill()
            one.wait()
