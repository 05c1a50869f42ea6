"""What an open store costs when idle, and how late due work is noticed."""

from __future__ import annotations

import statistics
import time

import tampu
from bench.measure import Row, folder


def run(quick: bool) -> list[Row]:
    with folder() as place, tampu.open(place / "tampu.db") as store:
        store.publish("bench", 0, delay=3600)
        store.claim("other", wait=0.2)
        seconds = 3 if quick else 20
        began, cpu = time.perf_counter(), time.process_time()
        store.claim("other", wait=seconds)
        idle = (time.process_time() - cpu) / (time.perf_counter() - began)
        late = []
        for _ in range(5 if quick else 40):
            due = time.perf_counter() + 0.1
            store.publish("bench", 0, delay=0.1)
            store.claim("bench", wait=5)
            late.append((time.perf_counter() - due) * 1000)
        late.sort()
    return [
        Row("CPU of an idle open queue with a waiting claim", idle * 100, "% of a core"),
        Row("due work noticed late by, median", statistics.median(late), "ms"),
        Row("due work noticed late by, worst", late[-1], "ms", "≤ 50"),
    ]
