"""`make bench-worker`: tasks compared with other queues; start latency; the cost of a no-op and of an idle worker.

ARGS="--only redis" selects a part, ARGS=--quick is a rough measurement.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

import tampu
from bench import worker_app
from bench.measure import Row, folder, in_turns, rate, rates, ratio_row, show, write
from bench.peers.embedded import huey
from bench.peers.side_by_side import ON_POSTGRES, ON_REDIS, Peer, beside_postgres, beside_redis
from tests.servers.http import Server as HttpServer
from tests.servers.postgres import Postgres
from tests.servers.redis import DURABLE, Server, redis_binary

APP = Peer("tampu app", 50_000)


def _targets(rates: dict[str, float], theirs: str, target: str) -> Row:
    return Row(f"tampu / {theirs}", rates[APP.shown] / rates[theirs], "ratio", target)


def on_redis(quick: bool) -> list[Row]:
    found, rows = beside_redis((APP, *ON_REDIS), quick)
    fastest = max((peer.name for peer in ON_REDIS if peer.environment != "node"), key=found.__getitem__)
    return [*rows, _targets(found, fastest, "≥ 5"), _targets(found, "BullMQ", "≥ 2")]


def on_postgres(quick: bool) -> list[Row]:
    found, rows = beside_postgres((APP, *ON_POSTGRES), quick)
    return [*rows, *(_targets(found, peer.name, "≥ 3") for peer in ON_POSTGRES)]


def embedded(quick: bool) -> list[Row]:
    count, theirs = (5_000, 500) if quick else (APP.count, 2_000)
    found = in_turns({"tampu app": partial(_on_file, count=count), "huey SQLite": partial(huey, count=theirs)}, 3)
    return [*rates(found), ratio_row(found, "tampu app", "huey SQLite", "≥ 10")]


def _on_file(place: Path, count: int) -> float:
    with tampu.App(place / "jobs.db") as app:

        @app.task
        async def nothing(payload: str) -> None:
            del payload

        def work() -> None:
            for _ in range(0, count, 1000):
                app.publish_many([nothing.message("x" * 200) for _ in range(1000)])
            while app.store.stats("default").done < count:
                time.sleep(0.005)

        with tampu.working(app):
            return rate(count, work)


# -- how late a task starts, and what waiting costs


@contextmanager
def _stores() -> Iterator[dict[str, tuple[str, str | None, Callable[[], int] | None]]]:
    """Stores by name: url, token, and the number of round trips served."""
    redis = Server(redis_binary(), {**DURABLE, "appendfsync": "everysec"}).start()
    with folder() as place, Postgres() as postgres:
        http = HttpServer(url=str(place / "served.db"))
        try:
            yield {
                "embedded": (str(place / "jobs.db"), None, None),
                "PostgreSQL": (postgres.url(), None, partial(_transactions, postgres)),
                "Redis": (redis.url(), None, partial(_reads, redis)),
                "http": (http.url, http.token, lambda: _answers(http)),
            }
        finally:
            http.stop()
            redis.remove()


def _transactions(server: Postgres) -> int:
    import psycopg

    with psycopg.connect(server.url(), autocommit=True) as db:
        row = db.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres'"
        ).fetchone()
        assert row is not None
        return int(row[0])


def _reads(server: Server) -> int:
    with server.client() as client:
        return int(client.info("stats")["total_reads_processed"])


def _answers(server: HttpServer) -> int:
    """Requests that the server has answered, by its metrics; this request is one more."""
    asked = urllib.request.Request(f"{server.url}/metrics", headers={"authorization": f"Bearer {server.token}"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith("tampu_http_requests_total"))


@contextmanager
def _worker(url: str, token: str | None) -> Iterator[int]:
    env = {**os.environ, "TAMPU_URL": url, **({} if token is None else {"TAMPU_TOKEN": token})}
    process = subprocess.Popen(
        [sys.executable, "-c", "from tampu.cli.main import main; main()", "work", "bench.worker_app:app"],
        env=env, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _cpu(pid: int) -> float:
    """Seconds of CPU time of a worker and its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(_cpu(int(child)) for child in children)


def waiting(quick: bool) -> list[Row]:
    rows: list[Row] = []
    count, seconds = (30, 10.0) if quick else (300, 20.0)
    with _stores() as stores:
        for name, (url, token, served) in stores.items():
            # At rest first: nothing has been claimed yet.
            with _worker(url, token) as pid:
                time.sleep(12)  # it has started and tidied up once, and the server has counted that
                trips, cpu, began = served() if served else 0, _cpu(pid), time.perf_counter()
                time.sleep(seconds)
                took = time.perf_counter() - began
                rows.append(Row(f"{name}: idle worker", (_cpu(pid) - cpu) / took * 100, "% of a core", "< 1"))
                if served:
                    rows.append(Row(f"{name}: idle worker", (served() - trips - 1) / took, "round trips/s", "< 2"))
            with tampu.open(url, token=token) as store, _worker(url, token):
                late = sorted(_late(store) for _ in range(count + 5))[: -5 if quick else None]
                rows.append(Row(f"{name}: publish to start, p50", statistics.median(late) * 1000, "ms", "< 5"))
                rows.append(Row(f"{name}: publish to start, p99", late[int(len(late) * 0.99)] * 1000, "ms", "< 20"))
    return rows


def _late(store: tampu.Store) -> float:
    new: Any = worker_app.late.message(time.time()).stored
    found = store.publish_many("default", [new])[0]
    return float(store.result(found.id, wait=60).result)


def costs(quick: bool) -> list[Row]:
    """Processor time of a worker for one no-op: to claim, decode, run and settle it."""
    rows, count = list[Row](), 5_000 if quick else APP.count
    with _stores() as stores:
        for name, (url, token, _) in stores.items():
            with tampu.open(url, token=token) as store:
                news: list[Any] = [worker_app.nothing.message("x" * 200).stored for _ in range(1_000)]
                with _worker(url, token) as pid:
                    _carry_out(store, news, 1_000, 1_000)  # it has started
                    before = _cpu(pid)
                    _carry_out(store, news, count, 1_000 + count)
                    rows.append(Row(f"{name}: a no-op task", (_cpu(pid) - before) / count * 1e6, "µs of a core"))
    return rows


def _carry_out(store: tampu.Store, news: list[Any], count: int, done: int) -> None:
    """Publish this many, and wait until that many are done in total."""
    for _ in range(0, count, len(news)):
        store.publish_many("default", news)
    while store.stats("default").done < done:
        time.sleep(0.05)


PARTS = {
    "redis": ("Tasks on the same Redis, no-op, synced every second", on_redis),
    "postgres": ("Tasks on the same PostgreSQL, no-op, full fsync", on_postgres),
    "embedded": ("Tasks in a file, no-op, full fsync", embedded),
    "costs": ("A worker that works", costs),
    "waiting": ("A worker that waits", waiting),
}


def main() -> None:
    options = argparse.ArgumentParser(prog="bench.worker", description=__doc__)
    options.add_argument("--only", action="append", choices=PARTS, help="only this part (may be given again)")
    options.add_argument("--quick", action="store_true", help="small numbers: a rough look")
    options.add_argument("--json", type=Path, default=Path("build/bench-worker.json"), help="where the JSON goes")
    chosen = options.parse_args()
    console = Console()
    report: dict[str, list[Row]] = {}
    for name in chosen.only or PARTS:
        title, run = PARTS[name]
        console.print(f"measuring {name} …")
        report[name] = run(chosen.quick)
        show(console, title, report[name])
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    write(chosen.json, report)


if __name__ == "__main__":
    main()
