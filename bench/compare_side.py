"""One side of `bench/compare.py`: works with the tampu on PYTHONPATH, an old one or this one, and prints JSON.

It uses only what both have. Names that differ: ``open(maintenance=)`` was ``open(keepers=)``, ``app.store`` was
``app.queue``.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
from functools import partial
from typing import Any

import tampu

PAYLOAD = b"x" * 200
WARM_UP = 20
"""Batches before the clock starts."""


def _open(url: str, token: str | None) -> Any:
    names = inspect.signature(tampu.open).parameters
    options: dict[str, Any] = {"maintenance" if "maintenance" in names else "keepers": False}
    return tampu.open(url, token=token, **options)


class Clock:
    """Wall and processor time of each verb."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def __call__(self, verb: str, work: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        answer = work()
        spent = self.seconds.setdefault(verb, [0.0, 0.0])
        spent[0] += time.perf_counter() - wall
        spent[1] += time.process_time() - cpu
        return answer


def calls(url: str, batch: int, count: int, token: str | None = None) -> dict[str, list[float]]:
    """Publish, claim and ack ``count`` messages in batches; {verb: [wall, processor]} in microseconds a message."""

    def work(store: Any, count: int) -> Clock:
        clock = Clock()
        for _ in range(0, count, batch):
            clock("publish", lambda: store.publish_many("bench", [PAYLOAD] * batch))
            leases = clock("claim", lambda: store.claim("bench", limit=batch))
            acks = [tampu.Ack(lease) for lease in leases]
            clock("ack", partial(store.settle, acks))
        return clock

    with _open(url, token) as store:
        work(store, WARM_UP * batch)
        found = work(store, count).seconds
    return {verb: [spent / count * 1e6 for spent in times] for verb, times in found.items()}


def options(url: str, count: int) -> dict[str, list[float]]:
    """Publishes with a group and with a key, claims and nacks of the first, and look-ups, one by one."""

    def work(store: Any, count: int) -> Clock:
        clock = Clock()
        for number in range(count):
            made = clock(
                "grouped publish", lambda number=number: store.publish("bench", PAYLOAD, group=f"g{number % 9}")
            )
            clock("keyed publish", lambda number=number: store.publish("keyed", PAYLOAD, key=f"k{number % 500}"))
            clock("get", partial(store.get, made.id))
            (lease,) = clock("claim of a group", lambda: store.claim("bench"))
            clock("nack", partial(store.nack, lease, "later", delay=3600))
        return clock

    with _open(url, None) as store:
        work(store, WARM_UP)
        found = work(store, count).seconds
    return {verb: [spent / count * 1e6 for spent in times] for verb, times in found.items()}


def worker(url: str, count: int) -> dict[str, list[float]]:
    """A worker carries out ``count`` tasks that do nothing, published by the same process."""
    with tampu.App(url) as app:

        @app.task
        async def nothing(payload: str) -> None:
            del payload

        store: Any = getattr(app, "store", None) or app.queue  # type: ignore[attr-defined]  # its old name

        def work(count: int, done: int) -> None:
            for _ in range(0, count, 500):
                app.publish_many([nothing.message("x" * 200) for _ in range(500)])
            while store.stats("default").done < done:
                time.sleep(0.01)

        clock = Clock()
        with tampu.working(app):
            work(500, 500)
            clock("task", lambda: work(count, 500 + count))
    return {verb: [spent / count * 1e6 for spent in times] for verb, times in clock.seconds.items()}


if __name__ == "__main__":
    what, url, *rest = sys.argv[1:]
    if what == "calls":
        found = calls(url, int(rest[0]), int(rest[1]), rest[2] if len(rest) > 2 else None)
    else:
        found = (options if what == "options" else worker)(url, int(rest[0]))
    print(json.dumps(found))
