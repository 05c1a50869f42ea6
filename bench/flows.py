"""What flows cost: a chain of a thousand steps, fan-ins, and how soon a child is free. An embedded file, full fsync."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tampu
from bench.measure import Row
from tampu import FlowMember, NewMessage

_BATCH = 500


def run(quick: bool) -> list[Row]:
    steps, wide, tries = (100, 1_000, 10) if quick else (1_000, 10_000, 50)
    with tempfile.TemporaryDirectory() as folder, tampu.open(Path(folder) / "jobs.db") as store:
        _chain(store, 10)  # the follower begins with the first flow
        plain = _plain(store, wide)
        narrow, broad = _fan_in(store, wide // 10), _fan_in(store, wide)
        return [
            Row("from ack to free, idle", statistics.median(_free(store) for _ in range(tries)) * 1e3, "ms"),
            Row(f"a chain of {steps:,}", _chain(store, steps) / steps * 1e3, "ms a step"),
            Row(f"a fan-in of {wide // 10:,}", narrow / (wide // 10) * 1e6, "µs a member"),
            Row(f"a fan-in of {wide:,}", broad / wide * 1e6, "µs a member"),
            Row(f"{wide:,} messages without a flow", plain / wide * 1e6, "µs a message"),
            Row("a member / a message without a flow", broad / plain, "ratio"),
        ]


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _member(payload: object, *after: object) -> FlowMember:
    return FlowMember(queue="jobs", message=NewMessage(payload), after=after, into="" if after else None)


def _chain(store: tampu.Store, steps: int) -> float:
    """Each step is claimed as soon as it is free."""

    def work() -> None:
        store.flows.publish([_member(0), *(_member(None, n) for n in range(steps - 1))])
        for _ in range(steps):
            (lease,) = store.claim("jobs", wait=60)
            store.ack(lease, lease.payload + 1)

    return _timed(work)


def _free(store: tampu.Store) -> float:
    """Seconds from the return of the ack until the child is claimed by a claim that waits."""
    store.flows.publish([_member(0), _member(None, 0)])
    (lease,) = store.claim("jobs", wait=60)
    time.sleep(0.1)  # until the store is at rest
    began = time.perf_counter()
    store.ack(lease, 1)
    (child,) = store.claim("jobs", wait=60)
    took = time.perf_counter() - began
    store.ack(child)
    time.sleep(0.05)
    return took


def _work_all(store: tampu.Store, count: int) -> None:
    while count:
        leases = store.claim("jobs", limit=_BATCH, wait=60)
        store.settle([tampu.Ack(lease, 1) for lease in leases])
        count -= len(leases)


def _fan_in(store: tampu.Store, wide: int) -> float:
    """Published, worked on, and joined with all results."""

    def work() -> None:
        store.flows.publish([*(_member(n) for n in range(wide)), _member(None, (0, wide))])
        _work_all(store, wide + 1)

    return _timed(work)


def _plain(store: tampu.Store, count: int) -> float:
    def work() -> None:
        for start in range(0, count, 10_000):
            store.publish_many("jobs", range(start, min(count, start + 10_000)))
        _work_all(store, count)

    return _timed(work)
