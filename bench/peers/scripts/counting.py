"""What the scripts share: counting no-op jobs, and printing the seconds.

Each script is one peer, run in its own environment: `script.py URL COUNT`. It publishes COUNT no-op jobs with a
200-byte argument to an empty store, lets one worker run them, and prints `{"fill": seconds, "drain": seconds}`.
Draining is timed from the first job to the last, without start-up time.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator

PAYLOAD = "x" * 200


class Jobs:
    """Counts the jobs that ran; the last one sets `done`."""

    def __init__(self, count: int) -> None:
        self.done = threading.Event()
        self.when_done: Callable[[], object] = self.done.set
        self._count = count
        self._ran = 0
        self._first = self._last = 0.0
        self._lock = threading.Lock()

    def one(self, many: int = 1) -> None:
        """What every job does."""
        with self._lock:
            if not self._ran:
                self._first = time.perf_counter()
            self._ran += many
            if self._ran != self._count:
                return
            self._last = time.perf_counter()
        self.when_done()

    @property
    def seconds(self) -> float:
        if self._ran != self._count:
            raise RuntimeError(f"{self._ran} of {self._count} jobs ran")
        return self._last - self._first


URL = sys.argv[1]
COUNT = int(sys.argv[2])
jobs = Jobs(COUNT)


def chunks(size: int) -> Iterator[int]:
    """COUNT in pieces of at most `size`."""
    for start in range(0, COUNT, size):
        yield min(size, COUNT - start)


class Timer:
    """Seconds of a `with` block."""

    def __enter__(self) -> Timer:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began


def tell(fill: Timer) -> None:
    print(json.dumps({"fill": fill.seconds, "drain": jobs.seconds}), flush=True)
