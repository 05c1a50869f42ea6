"""Streams of workers: how soon a worker gets a message, and how many it acks a second, against plain requests."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import tampu
from bench.measure import PAYLOAD, rate

CREDIT = 512
WORKERS = 16


def latencies(url: str, token: str, a_second: int, seconds: float) -> list[float]:
    """Milliseconds from the start of a publish until the worker has the message, sorted."""
    with tampu.open(url, token=token) as store:
        sent = threading.Thread(target=_publish, args=(url, token, a_second, round(a_second * seconds)))
        late: list[float] = []
        with store.stream("bench", credit=CREDIT) as stream:
            sent.start()
            while len(late) < round(a_second * seconds):
                lease = stream.next(10)
                assert lease is not None
                late.append((time.perf_counter() - lease.payload) * 1000)
                stream.ack(lease)
        sent.join()
    return sorted(late[a_second // 2 :])


def _publish(url: str, token: str, a_second: int, count: int) -> None:
    """Publish at a fixed rate from several threads, each message with the time of its publish."""
    with tampu.open(url, token=token) as store:
        began, callers = time.perf_counter(), 4

        def work(first: int) -> None:
            for n in range(first, count, callers):
                time.sleep(max(0.0, began + n / a_second - time.perf_counter()))
                store.publish("bench", time.perf_counter())

        threads = [threading.Thread(target=work, args=(first,)) for first in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def streamed(url: str, token: str, count: int) -> float:
    """Messages a second of one worker with a stream, each acked separately."""
    with tampu.open(url, token=token) as store:
        _fill(store, count)

        def work() -> None:
            with store.stream("bench", credit=CREDIT) as stream:
                for _ in range(count):
                    lease = stream.next(10)
                    assert lease is not None
                    stream.ack(lease)

        return rate(count, work)


def requested(url: str, token: str, count: int) -> float:
    """The same with a request for each claim and each ack, from several threads."""
    with tampu.open(url, token=token) as store:
        _fill(store, count)

        def worker() -> None:
            for _ in range(count // WORKERS):
                (lease,) = store.claim("bench", wait=5)
                store.ack(lease)

        def work() -> None:
            threads = [threading.Thread(target=worker) for _ in range(WORKERS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        return rate(count, work)


def _fill(store: tampu.Store, count: int) -> None:
    for _ in range(0, count, 1000):
        store.publish_many("bench", [PAYLOAD] * min(1000, count))


def token_of(place: Path) -> str:
    return (place / "tampu.db.key").read_text().strip()
