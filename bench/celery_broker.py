"""Celery on tampu beside Celery on Redis: the same Redis, the same worker settings, no-op tasks, in turns."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import Row
from tests.servers.redis import Server, redis_binary

_ROOT = Path(__file__).parents[1]
_SENDER = "import sys; from bench.celery_app import nothing; [nothing.delay(n) for n in range(int(sys.argv[1]))]"


def _environment(broker: str) -> dict[str, str]:
    return {**os.environ, "BROKER": broker, "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "src")])}


def _measure(broker: str, count: int, left: Callable[[], int]) -> tuple[float, float]:
    """Seconds to send and to carry out ``count`` tasks."""
    environment = _environment(broker)
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", _SENDER, str(count)], env=environment, check=True, cwd=tempfile.gettempdir())
    sent = time.perf_counter() - began
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "bench.celery_app", "worker", "-c", "1", "-l", "error",
         "--without-gossip", "--without-mingle", "--without-heartbeat"],
        env=environment, cwd=tempfile.gettempdir(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        first = left()
        while left() == first:
            time.sleep(0.01)  # until the worker has started
        began, first = time.perf_counter(), left()
        while left() > 0:
            time.sleep(0.01)
        return sent, (time.perf_counter() - began) / max(first, 1) * count
    finally:
        worker.terminate()
        worker.wait(60)


def run(quick: bool) -> list[Row]:
    import redis

    import tampu

    turns, count = (1, 1000) if quick else (3, 5000)
    best: dict[str, tuple[float, float]] = {}
    server = Server(redis_binary()).start()
    try:
        for _ in range(turns):
            with redis.Redis.from_url(server.url()) as client:
                client.flushall()
                plain = _measure(server.url(), count, lambda client=client: int(client.llen("bench")))  # type: ignore[misc]
                client.flushall()
            url = server.url(prefix="celery")
            with tampu.open(url, maintenance=False) as store:
                store.queues.put("bench", ordering="fifo")

                def left(store: tampu.Store = store) -> int:
                    return int(store.stats("bench").ready)

                own = _measure(f"tampu+{url}", count, left)
            for name, found in (("redis", plain), ("tampu", own)):
                known = best.get(name, found)
                best[name] = min(known[0], found[0]), min(known[1], found[1])
    finally:
        server.remove()
    return [
        Row(f"Celery on tampu / Celery on Redis: {what}", best["redis"][at] / best["tampu"][at], "ratio", "1.0",
            f"{count / best['tampu'][at]:,.0f} tasks/s")
        for at, what in enumerate(("sending, with its start", "a worker of one process"))
    ]  # fmt: skip
