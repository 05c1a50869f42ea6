"""Two source trees side by side: python -m bench.compare OLD NEW --engines memory,file,postgres --rounds 3

OLD and NEW are checkouts, or their ``src``. Each measurement runs in a process of its own, in turns, on the same
servers, without a sync to disk, so that the disk does not decide. The best of all rounds counts. The ratio is the speed
of NEW divided by that of OLD: below 1, NEW is slower.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.http import load
from tests.servers.mariadb import MariaDb
from tests.servers.postgres import Postgres
from tests.servers.redis import Server, redis_binary, valkey_binary

_SIDE = str(Path(__file__).with_name("compare_side.py"))
ENGINES = ("memory", "file", "postgres", "mariadb", "redis", "valkey", "http")
_TIMEOUT = 600
_COUNTS = {1: 1_000, 100: 10_000}
"""Messages by batch; a tenth with --quick."""
_TASKS = 5_000
_CONNECTIONS = 32
_BODY = b'{"to": "ada@example.org", "text": "' + b"x" * 160 + b'"}'
Found = dict[str, list[float]]
"""By measurement: [wall, processor] in microseconds a message."""
Place = Callable[[], str]
"""Answers with the url of an empty store."""


@contextlib.contextmanager
def _places(engine: str) -> Iterator[Place]:
    stack = contextlib.ExitStack()
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with stack:
        if engine == "memory":
            yield lambda: "memory://"
        elif engine in ("file", "http"):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tampu-compare-", dir=shared)))
            yield lambda: str(folder / f"{time.monotonic_ns()}.db")
        elif engine == "postgres":
            postgres = stack.enter_context(Postgres())
            yield lambda: _new_schema(postgres)
        elif engine == "mariadb":
            mariadb = stack.enter_context(MariaDb())
            yield lambda: _new_database(mariadb)
        else:
            server = Server(redis_binary() if engine == "redis" else valkey_binary()).start()
            stack.callback(server.remove)
            yield lambda: server.url(prefix=f"p{time.monotonic_ns()}")


def _new_schema(server: Postgres) -> str:
    return server.url(schema=f"s{time.monotonic_ns()}")


def _new_database(server: MariaDb) -> str:
    name = f"d{time.monotonic_ns()}"
    with server.connect() as db, db.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    return server.url(name)


# -- one measurement


def _environment(tree: Path) -> dict[str, str]:
    source = tree / "src" if (tree / "src").is_dir() else tree
    return {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}


def _side(tree: Path, *arguments: str) -> Found:
    done = subprocess.run(
        [sys.executable, "-P", _SIDE, *arguments],  # -P: bench/redis.py is not the driver
        env=_environment(tree), cwd=tempfile.gettempdir(), capture_output=True, text=True, timeout=_TIMEOUT,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{tree}: {done.stderr[-2000:]}")
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


@contextlib.contextmanager
def serving(tree: Path, url: str, *options: str) -> Iterator[tuple[str, str, int]]:
    """A server of the tree: its url, its key, its process."""
    command = "from tampu.cli.main import main; main()"
    words = ["serve", "--url", url, "--port", "0", "--log-level", "error", "--json", *options]
    process = subprocess.Popen(
        [sys.executable, "-c", command, *words],
        env=_environment(tree), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tempfile.gettempdir(),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        about = json.loads(process.stdout.readline())
        yield about["url"], Path(about["key_file"]).read_text().strip(), process.pid
    finally:
        process.terminate()
        process.wait(60)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _over_http(tree: Path, url: str, part: int) -> Found:
    """Single publishes of many connections (processor time of the server), and batches of the client."""
    found: Found = {}
    with serving(tree, url) as (served, token, pid):
        each = 200 // part
        before = processor_seconds(pid)
        speed = load.run(served, load.request("/v1/queues/bench/messages", _BODY, token), _CONNECTIONS, each)
        requests = _CONNECTIONS * (each + max(1, each // 5))
        found["publish over 32 connections"] = [1e6 / speed, (processor_seconds(pid) - before) / requests * 1e6]
        for batch, count in _COUNTS.items():
            verbs = _side(tree, "calls", served, str(batch), str(count // part), token)
            found |= {f"{verb}, batch {batch}": times for verb, times in verbs.items()}
    return found


def _measure(tree: Path, engine: str, place: Place, part: int) -> Found:
    if engine == "http":
        return _over_http(tree, place(), part)
    found: Found = {}
    for batch, count in _COUNTS.items():
        verbs = _side(tree, "calls", place(), str(batch), str(count // part))
        found |= {f"{verb}, batch {batch}": times for verb, times in verbs.items()}
    found |= _side(tree, "options", place(), str(_COUNTS[1] // part))
    return found | {"a task of a worker": _side(tree, "worker", place(), str(_TASKS // part))["task"]}


# -- the comparison


def compare(
    trees: tuple[Path, Path], engine: str, rounds: int, part: int
) -> dict[str, tuple[list[float], list[float]]]:
    """The best of all rounds: {measurement: (of OLD, of NEW)}."""
    best: tuple[Found, Found] = ({}, {})
    with _places(engine) as place:
        for turn in range(rounds):
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                for name, times in _measure(trees[side], engine, place, part).items():
                    known = best[side].setdefault(name, times)
                    best[side][name] = [min(a, b) for a, b in zip(known, times, strict=True)]
    return {name: (old, best[1][name]) for name, old in best[0].items()}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("old", type=Path)
    options.add_argument("new", type=Path)
    options.add_argument("--engines", default=",".join(ENGINES), help=f"of {','.join(ENGINES)}")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--quick", action="store_true", help="a tenth of the messages")
    chosen = options.parse_args()
    console, slowest = Console(width=110), 9.9
    for engine in chosen.engines.split(","):
        found = compare((chosen.old, chosen.new), engine, chosen.rounds, 10 if chosen.quick else 1)
        table = Table(title=f"{engine}: microseconds a message, best of {chosen.rounds}", title_justify="left")
        for column in ("what", "old wall", "new wall", "ratio", "old cpu", "new cpu", "ratio"):
            table.add_column(column, justify="left" if column == "what" else "right")
        for name, (old, new) in found.items():
            ratios = [a / b if b else 1.0 for a, b in zip(old, new, strict=True)]
            slowest = min(slowest, *ratios)
            cells = [f"{x:.1f}" for x in (old[0], new[0])], [f"{x:.1f}" for x in (old[1], new[1])]
            table.add_row(name, *cells[0], f"{ratios[0]:.2f}", *cells[1], f"{ratios[1]:.2f}")
        console.print(table)
    console.print(f"the lowest ratio is {slowest:.2f}; load now {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
