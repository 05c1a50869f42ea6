"""Journals to measure the lake with: a working day of two tenants, of any size; and the cost of processes."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import tampu
from bench.measure import PAYLOAD

BATCH = 1000
_START = 1_767_225_600_000_000  # 2026-01-01
HOUR = 3_600_000_000
_DAY = 24 * HOUR
NEXT_DAY = _START + _DAY
_QUEUES = ("emails", "reports", "orders", "thumbnails")
_TICKS = os.sysconf("SC_CLK_TCK")


class Clock:
    def __init__(self, at: int) -> None:
        self.at = at

    def now(self) -> int:
        return self.at


def fill(
    path: Path,
    transitions: int,
    *,
    start: int = _START,
    span: int = _DAY,
    shares: tuple[int, int] = (3, 1),
    seed: int = 1,
) -> int:
    """Publish, claim and settle messages of two tenants, who have these shares of them, in batches, by several workers,
    spread over a day; one in fifty fails and is retried. Returns the number of transitions in the journal."""
    chance, clock = random.Random(seed), Clock(start)
    step = max(1, span * 3 * BATCH // max(transitions, 1) // 4)
    url = f"sqlite:///{path}?durability=process"
    queues = [tampu.open(url, tenant=tenant, maintenance=False, clock=clock) for tenant in ("default", "acme")]
    end = before = queues[0].journal(limit=1).latest["0"]
    while end - before < transitions:
        store, name = chance.choices(queues, shares)[0], chance.choice(_QUEUES)
        store.publish_many(name, [tampu.NewMessage(PAYLOAD, type=f"{name}.run")] * BATCH)
        leases = []
        for worker in range(4):
            clock.at += chance.randrange(2 * step // 5) + 1
            leases.append(store.claim(name, limit=BATCH // 4, worker=f"w{worker}"))
        for some in leases:
            clock.at += chance.randrange(2 * step // 5) + 1
            cut = len(some) // 50
            failed = [tampu.Nack(lease, f"SMTP {chance.randrange(500)}", delay=0) for lease in some[:cut]]
            store.settle([*failed, *(tampu.Ack(lease) for lease in some[cut:])])
        end = store.journal(limit=1).latest["0"]
    for store in queues:
        store.close()
    return end


def _family() -> Iterator[Path]:
    """/proc folders of this process and all its descendants."""
    known = {os.getpid()}
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    while new := {pid for pid, parent in parents.items() if parent in known} - known:
        known |= new
    for pid in known:
        yield Path("/proc", str(pid))


def processor_seconds() -> float:
    """CPU seconds of this process and all its descendants, also of those that have ended."""
    total = 0
    for entry in _family():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / _TICKS


def peak_mib() -> dict[str, float]:
    """Peak memory of Java and of the largest Python worker."""
    most: dict[str, float] = {"java": 0.0, "python": 0.0}
    for entry in _family():
        try:
            text = (entry / "status").read_text()
        except OSError:
            continue
        status = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        kind = "java" if status["Name"].strip().startswith("java") else "python"
        if entry.name != str(os.getpid()) and "VmHWM" in status:
            most[kind] = max(most[kind], int(status["VmHWM"].split()[0]) / 1024)
    return most
