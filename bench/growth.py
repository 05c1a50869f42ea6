"""Claim with millions of messages in the store: 1 M ready, 1 M delayed and 1 M ended, against an empty queue."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from pathlib import Path

import tampu
from bench.measure import PAYLOAD, Row, folder

BATCH = 100
BULK = 10_000


def _claim_seconds(store: tampu.Store, queue: str, rounds: int) -> float:
    """Median time of a claim of 100, each with 100 messages published before and acked after."""
    times = []
    for _ in range(rounds):
        store.publish_many(queue, [PAYLOAD] * BATCH)
        began = time.perf_counter()
        leases = store.claim(queue, limit=BATCH)
        times.append(time.perf_counter() - began)
        store.settle([tampu.Ack(lease) for lease in leases])
    return statistics.median(times)


def _own_kib() -> int:
    """Memory of the process itself; pages of the file that are mapped belong to the system."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("RssAnon")))


def _fill(place: Path, million: int) -> None:
    with tampu.open(f"sqlite:///{place}/big.db?durability=process") as store:
        for _ in range(0, million, BULK):
            store.publish_many("ended", [PAYLOAD] * BULK)
            store.settle([tampu.Ack(lease) for lease in store.claim("ended", limit=BULK)])
        for _ in range(0, million, BULK):
            store.publish_many("bench", [tampu.NewMessage(PAYLOAD, delay=86_400)] * BULK)
        for _ in range(0, million, BULK):
            store.publish_many("bench", [PAYLOAD] * BULK)


def run(quick: bool) -> list[Row]:
    million = 50_000 if quick else 1_000_000
    rounds = 100 if quick else 400
    with folder() as place:
        filling = multiprocessing.get_context("spawn").Process(target=_fill, args=(place, million))
        filling.start()
        filling.join()
        os.sync()  # what the filling left to be written must not be measured
        began = time.perf_counter()
        full = tampu.open(place / "big.db")
        opening = time.perf_counter() - began
        empty = tampu.open(place / "empty.db")
        for store in (full, empty):
            _claim_seconds(store, "bench", rounds // 6)
        before = _own_kib()
        pairs = []
        for turn in range(6):
            first, second = (full, empty) if turn % 2 else (empty, full)
            one = _claim_seconds(first, "bench", rounds // 6)
            two = _claim_seconds(second, "bench", rounds // 6)
            pairs.append(one / two if first is full else two / one)
        began = time.perf_counter()
        counts = full.stats("bench").counts
        stats_seconds = time.perf_counter() - began
        size = (place / "big.db").stat().st_size
        full.close()
        empty.close()
        after = _own_kib()
    return [
        Row(
            "claim with 3 M around / empty",
            statistics.median(pairs),
            "ratio",
            "≤ 1.10",
            f"{min(pairs):.2f} to {max(pairs):.2f}",
        ),
        Row("opening that file", opening, "s", "< 1"),
        Row("stats of that queue", stats_seconds * 1000, "ms", "", f"{counts[tampu.State.READY]:,} ready"),
        Row("memory added while claiming", (after - before) / 1024, "MiB", "flat", "a cache of at most 64 MiB fills"),
        Row("file", size / 3 / million, "bytes/message"),
    ]
