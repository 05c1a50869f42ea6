"""A unit over HTTP whose server is killed between any two of its statements takes effect once."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import tampu
from tests.conformance.dying import ALL, Mortals, found, send_unit
from tests.conformance.harness import until
from tests.servers.ports import free_port

MOST = 200


def test_a_unit_takes_effect_once_wherever_its_server_is_killed(tmp_path: Path) -> None:
    """Each server is killed at the next statement of its unit. The client asks again, and the next server answers."""
    file, port, over = tmp_path / "jobs.db", free_port(), threading.Event()
    lived, pid, key = (Path(f"{file}.{name}") for name in ("lived", "pid", "key"))

    mortals = Mortals(str(file))

    def serve() -> None:
        for nth in range(MOST):
            mortals.serve(nth, port)
            if over.is_set():
                return

    servers = threading.Thread(target=serve)
    servers.start()
    try:
        until(key.exists)
        with tampu.open(f"http://127.0.0.1:{port}", token=key.read_text().strip()) as store:
            units = 0
            while not lived.exists():
                store.publish(f"jobs-{units}", "work")
                (lease,) = store.claim(f"jobs-{units}", lease=3600)
                send_unit(store, units, lease.receipt)
                assert found(store, units) == ALL
                units += 1
            published = [t for t in store.journal(limit=10_000).transitions if t.verb == "publish"]
        assert len(published) == 4 * units
        assert units > 10, "there are statements to die between"
    finally:
        over.set()
        os.kill(int(pid.read_text()), signal.SIGKILL)
        servers.join(60)
