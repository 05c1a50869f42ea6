"""Runs the scripts of the peers and of tampu in turns, and reports the ratios.

A rate is jobs end to end: published and run, one after the other, so 1 / (1 / fill rate + 1 / drain rate).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import psycopg

from bench.measure import Row, in_turns
from bench.peers import environments
from tests.servers.postgres import Postgres
from tests.servers.redis import DURABLE, Server, redis_binary

_SCRIPTS = Path(__file__).parent / "scripts"
_SECONDS = 300


class Peer(msgspec.Struct, frozen=True):
    """A queue that takes part."""

    name: str
    count: int
    """Jobs per turn: a few seconds' worth."""
    environment: str | None = None
    """None: tampu's own, `node`: that of node."""
    batch: int | None = None
    """Given to the script besides."""

    @property
    def shown(self) -> str:
        return self.name if self.batch is None else f"{self.name}, batch {self.batch}"

    def command(self) -> list[str | Path]:
        if self.environment == "node":
            script = environments.node() / "with_bullmq.mjs"
            script.write_text((_SCRIPTS / script.name).read_text())  # modules are looked for beside it
            return ["node", script]
        python = Path(sys.executable) if self.environment is None else environments.python(self.environment)
        return [python, _SCRIPTS / f"with_{self.name.lower().replace(' ', '_')}.py"]


TAMPU = (
    Peer("tampu loop", 50_000, batch=100),
    Peer("tampu loop", 50_000, batch=500),
    Peer("tampu worker", 20_000),
    Peer("tampu tasks", 20_000),
)
ON_POSTGRES = (Peer("PGQueuer", 20_000, "postgres"), Peer("procrastinate", 1_000, "postgres"))
ON_REDIS = (
    Peer("celery", 2_000, "celery"),
    Peer("rq", 1_000, "redis"),
    Peer("dramatiq", 5_000, "redis"),
    Peer("arq", 3_000, "arq"),
    Peer("taskiq", 5_000, "redis"),
    Peer("saq", 3_000, "redis"),
    Peer("streaq", 3_000, "redis"),
    Peer("huey", 5_000, "redis"),
    Peer("BullMQ", 20_000, "node"),
)


def _beside(peers: tuple[Peer, ...], fresh: Callable[[], str], quick: bool) -> tuple[dict[str, float], list[Row]]:
    """The rate of each, and the rows of all; `fresh` gives the url of an empty store."""
    parts: dict[str, list[tuple[float, float]]] = {}

    def side(_: Path, peer: Peer, command: list[str | Path]) -> float:
        count = peer.count // 5 if quick else peer.count
        done = subprocess.run(
            [*command, fresh(), str(count), str(peer.batch)],
            capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{peer.name} failed:\n{done.stderr[-2000:]}")
        report = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
        parts.setdefault(peer.shown, []).append((count / report["fill"], count / report["drain"]))
        return float(count / (report["fill"] + report["drain"]))

    commands = {peer: peer.command() for peer in peers}  # environments are made before the clock starts
    found = in_turns({p.shown: partial(side, peer=p, command=commands[p]) for p in peers}, 1 if quick else 3)
    rates = {name: statistics.median(values) for name, values in found.items()}
    rows = []
    for name, rate in rates.items():
        fills, drains = zip(*parts[name], strict=True)
        note = f"in {statistics.median(fills):,.0f}/s, out {statistics.median(drains):,.0f}/s"
        rows.append(Row(name, rate, "jobs/s", "", note))
    return rates, rows


def _ratios(rates: dict[str, float], theirs: str, target: str) -> list[Row]:
    return [
        Row(f"{ours.shown} / {theirs}", rates[ours.shown] / rates[theirs], "ratio", target if ours.batch else "")
        for ours in TAMPU
    ]


def on_postgres(quick: bool) -> list[Row]:
    rates, rows = beside_postgres(TAMPU + ON_POSTGRES, quick)
    return rows + _ratios(rates, max((p.name for p in ON_POSTGRES), key=rates.__getitem__), "≥ 3")


def beside_postgres(peers: tuple[Peer, ...], quick: bool) -> tuple[dict[str, float], list[Row]]:
    """Full fsync."""
    with Postgres({"shared_buffers": "1GB", "max_wal_size": "4GB"}) as server:
        made: list[str] = []

        def fresh() -> str:
            with psycopg.connect(server.url(), autocommit=True) as db:
                for old in made:
                    db.execute(f"DROP DATABASE {old} WITH (FORCE)")
                made[:] = [f"peer_{len(made)}_{os.urandom(4).hex()}"]
                db.execute(f"CREATE DATABASE {made[0]}")
                db.execute("CHECKPOINT")  # nobody writes what the one before left
            return server.url(database=made[0])

        return _beside(peers, fresh, quick)


def on_redis(quick: bool) -> list[Row]:
    rates, rows = beside_redis(TAMPU + ON_REDIS, quick)
    fastest = max((peer.name for peer in ON_REDIS if peer.environment != "node"), key=rates.__getitem__)
    return rows + _ratios(rates, fastest, "≥ 5") + _ratios(rates, "BullMQ", "≥ 3")


def beside_redis(peers: tuple[Peer, ...], quick: bool) -> tuple[dict[str, float], list[Row]]:
    """Append-only file, synced every second."""
    server = Server(redis_binary(), {**DURABLE, "appendfsync": "everysec"}).start()

    def fresh() -> str:
        with server.client() as client:
            client.flushall()
        return server.url()

    try:
        return _beside(peers, fresh, quick)
    finally:
        server.remove()
