"""Single publishes against a bare handler, batches against the embedded library, streams against requests; idle."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

import tampu
from bench.end_to_end import ours as embedded
from bench.http import idle, load, streams
from bench.measure import PAYLOAD, Row, folder, in_turns, rate, rates, ratio_row, show, write

CONNECTIONS = 64
BATCH = 100
BODY = msgspec.json.encode({"to": "ada@example.org", "text": "x" * 160})
_CORES = sorted(os.sched_getaffinity(0))


@contextlib.contextmanager
def server(*command: str) -> Iterator[str]:
    """Start a server on the first core and return its url. The load comes from the other cores."""
    process = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, _CORES[:1]),  # noqa: PLW1509 - no threads run yet
    )
    assert process.stdout is not None
    try:
        os.sched_setaffinity(0, _CORES[1:] or _CORES)
        yield str(msgspec.json.decode(process.stdout.readline())["url"])
    finally:
        os.sched_setaffinity(0, _CORES)
        process.terminate()
        process.wait()


def _serve(place: Path) -> tuple[str, ...]:
    return ("-m", "bench.http.serve", str(place / "tampu.db"))


def simple(_place: Path, each: int) -> float:
    with server("-m", "bench.http.bare") as url:
        return load.run(url, load.request("/v1/queues/bench/messages", BODY, "x" * 63), CONNECTIONS, each)


def single(place: Path, each: int) -> float:
    with server(*_serve(place)) as url:
        token = (place / "tampu.db.key").read_text().strip()
        return load.run(url, load.request("/v1/queues/bench/messages", BODY, token), CONNECTIONS, each)


def batches(place: Path, count: int, callers: int) -> float:
    with server(*_serve(place)) as url:
        token = (place / "tampu.db.key").read_text().strip()
        with tampu.open(url, token=token) as store:

            def work(count: int) -> None:
                for _ in range(0, count, BATCH):
                    store.publish_many("bench", [PAYLOAD] * BATCH)
                    leases = store.claim("bench", limit=BATCH)
                    store.settle([tampu.Ack(lease) for lease in leases])

            def all_of_them(count: int) -> None:
                threads = [threading.Thread(target=work, args=(count // callers,)) for _ in range(callers)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

            all_of_them(20 * BATCH)
            return rate(count, lambda: all_of_them(count))


def pickup(place: Path, seconds: float) -> list[Row]:
    """How soon a worker with a stream gets a published message, at 1,000 messages a second."""
    with server(*_serve(place)) as url:
        late = streams.latencies(url, streams.token_of(place), 1000, seconds)
    at = {share: late[round((len(late) - 1) * share)] for share in (0.5, 0.99)}
    return [
        Row("from publish to the worker, p50", at[0.5], "ms"),
        Row("from publish to the worker, p99", at[0.99], "ms", "< 10"),
    ]


def working(place: Path, count: int, *, stream: bool) -> float:
    with server(*_serve(place)) as url:
        work = streams.streamed if stream else streams.requested
        return work(url, streams.token_of(place), count)


def main() -> int:
    options = argparse.ArgumentParser(prog="bench.http", description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--only", choices=("single", "batches", "streams", "idle"), help="only this part")
    options.add_argument("--json", type=Path, default=Path("build/bench-http.json"))
    chosen = options.parse_args()
    quick = chosen.quick
    console = Console()
    rounds, each, count = (3, 50, 4_000) if quick else (5, 200, 20_000)
    report: dict[str, list[Row]] = {}
    if chosen.only in (None, "single"):
        one = in_turns({"server": lambda p: single(p, each), "bare handler": lambda p: simple(p, each)}, rounds)
        report["single"] = [*rates(one), ratio_row(one, "server", "bare handler", "≥ 0.7")]
        show(console, f"Single publishes of {CONNECTIONS} connections, full fsync", report["single"])
    if chosen.only in (None, "batches"):
        sides: dict[str, Any] = {
            "over HTTP, 1 caller": lambda p: batches(p, count, 1),
            "over HTTP, 4 callers": lambda p: batches(p, count, 4),
            "embedded": lambda p: embedded(p, count, BATCH),
        }
        many = in_turns(sides, rounds)
        report["batches"] = [
            *rates(many),
            ratio_row(many, "over HTTP, 1 caller", "embedded", ""),
            ratio_row(many, "over HTTP, 4 callers", "embedded", "≥ 0.5"),
        ]
        show(console, f"Publish, claim and settle in batches of {BATCH}, full fsync", report["batches"])
    if chosen.only in (None, "streams"):
        with folder() as place:
            report["pickup"] = pickup(place, 4 if quick else 20)
        show(console, "A worker's stream at 1,000 messages a second, full fsync", report["pickup"])
        worked = in_turns(
            {
                "one stream": lambda p: working(p, count, stream=True),
                f"a request for each verb, {streams.WORKERS} threads": lambda p: working(p, count // 8, stream=False),
            },
            rounds,
        )
        stream, request = worked
        report["streams"] = [*rates(worked), ratio_row(worked, stream, request, "≥ 5")]
        show(console, "Messages claimed and acked one by one, full fsync", report["streams"])
    if chosen.only in (None, "idle"):
        report["idle"] = idle.run(quick)
        show(console, "A server at rest", report["idle"])
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    write(chosen.json, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
