"""Stores to move: full of messages in every state, in three tenants; and what to hold them against afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tampu
from tampu.broker.transfer import Move, Report, TransferOptions
from tampu.engines.port import Engine
from tampu.engines.transfer import MessageSnapshot, Request
from tampu.model.message import State
from tampu.store_factory import make_engine
from tests.conformance.harness import FakeClock
from tests.servers import mariadb, postgres, redis

DAY = 86_400
TENANTS = ("default", "acme", "zeta")
_numbers = itertools.count()

URLS: dict[str, Callable[[Path], str]] = {
    "file": lambda folder: str(folder / f"store{next(_numbers)}.db"),
    "postgres": lambda _: postgres.databases.url(),
    "redis": lambda _: redis.redis.url(),
    "mariadb": lambda _: mariadb.databases.url(),
}
PAIRS = [
    *itertools.product(("file", "postgres", "redis"), repeat=2),
    ("mariadb", "mariadb"),
    ("file", "mariadb"),
    ("mariadb", "redis"),
]
ROUND = [("file", "postgres"), ("postgres", "redis"), ("redis", "mariadb"), ("mariadb", "file")]
"""Each store gives once and takes once."""


@contextmanager
def opened(*urls: str, clock: FakeClock | None) -> Iterator[list[Engine]]:
    engines: list[Engine] = []
    try:
        for url in urls:
            engines.append(make_engine(url, clock=clock))
        yield engines
    finally:
        for engine in engines:
            engine.close()


def move(source: str, target: str, clock: FakeClock | None, **options: Any) -> Report:
    with opened(source, target, clock=clock) as (here, there):
        return Move(
            here, there, TransferOptions(**{"wait_seconds": 0, **options}), origin="the old store", goal="a new one"
        ).run()


def fill(url: str, clock: FakeClock) -> None:
    """Queues of every ordering, messages of every state, in each tenant."""
    for n, tenant in enumerate(TENANTS):
        with tampu.open(url, tenant=tenant, clock=clock, maintenance=False) as store:
            store.queues.put("*", result_ttl=DAY + n, status="paused" if n == 2 else None)
            _orders(store, clock)
            if n < 2:  # the third is paused
                _states(store, clock)
            store.publish("keyed", "v1", key="k", idempotency_key="i1")
            store.publish("keyed", "v2", key="k", idempotency_key="i2")
            store.publish("keyed", f"only {tenant}", idempotency_key="i3")
            store.queues.put("empty", max_depth=7)


def _orders(store: tampu.Store, clock: FakeClock) -> None:
    store.queues.put("by-priority", ordering="priority")
    store.queues.put("by-ageing", ordering="priority", ageing=10)
    store.queues.put("by-deadline", ordering="deadline")
    store.queues.put("by-group", group_order=True)
    store.queues.put("by-turns", ordering="fair")
    for n in range(12):
        with store.atomic() as unit:
            unit.publish("fifo", n)
            unit.publish("by-priority", n, priority=n * 5 % 7)
            unit.publish("by-ageing", n, priority=n * 5 % 7)
            unit.publish("by-deadline", n, deadline=clock.time if n % 3 else None)
            unit.publish("by-group", n, group=f"g{n % 3}")
            unit.publish("by-turns", n, group=f"g{n // 4}")
        clock.advance(3)


def _states(store: tampu.Store, clock: FakeClock) -> None:
    store.queues.put("states", max_attempts=2, status="open")
    store.publish("states", "ends")
    store.ack(store.claim("states", worker="w")[0], result={"n": 1})
    store.publish("states", "dies", type="a.b", labels={"l": "m"}, headers={"h": "i"})
    for _ in range(2):
        store.nack(store.claim("states", worker="w")[0], ValueError("no"), delay=0)
    store.publish("states", "fails", max_attempts=5)
    store.nack(store.claim("states")[0], "not yet", delay=DAY / 2)
    store.cancel(store.publish("states", "is cancelled").id)
    store.publish("states", "later", delay=DAY)
    store.publish("states", "held", hold="person")
    store.publish("states", b"\x00bytes", ttl=DAY, correlation_id="c", parent_id="p")


Contents = dict[tuple[str, str, State], list[MessageSnapshot]]


def contents(engine: Engine, *, ended: bool = True) -> Contents:
    """Every message, whole, by queue and state."""
    found: Contents = {}
    states = [s for s in State if ended or s not in (State.DONE, State.CANCELLED, State.EXPIRED)]
    for (tenant, queue), state in itertools.product(engine.queues(), states):
        after: tuple[Any, ...] | None = None
        items: list[MessageSnapshot] = []
        while True:
            page = engine.export_messages(tenant, queue, state, after, 100)
            assert page is not None
            items += page.items
            after = page.cursor
            if after is None:
                break
        if items:
            found[tenant, queue, state] = items
    return found


def requests(engine: Engine, tenant: str) -> dict[str, Request]:
    found: dict[str, Request] = {}
    after: tuple[Any, ...] | None = None
    while True:
        page = engine.export_idempotency_keys(tenant, after, 100)
        found |= {request.key: request for request in page.items}
        after = page.cursor
        if after is None:
            return found


def documents_of(engine: Engine) -> dict[tuple[str, str, str], bytes]:
    """Documents, without the notes of moves."""
    return {(d.kind, d.tenant, d.name): d.value for d in engine.all_documents() if d.kind != "move"}


def imported(engine: Engine) -> list[tuple[str, str]]:
    """(tenant, id) of every import in the journal, whose verb is adopt."""
    found = []
    position = None
    while True:
        page = engine.journal(position, 10_000, None)
        found += [(t.tenant, t.id) for t in page.transitions if t.verb == "adopt"]
        if not page.transitions:
            return found
        position = page.position


def drained(url: str, tenant: str, queues: Sequence[str], clock: FakeClock | None) -> dict[str, list[Any]]:
    """The payloads of each queue in the order they are delivered."""
    order: dict[str, list[Any]] = {queue: [] for queue in queues}
    with tampu.open(url, tenant=tenant, clock=clock, maintenance=False) as store:
        for queue in queues:
            store.queues.put(queue, status="open")
            while leases := store.claim(queue, limit=5):
                order[queue] += [lease.payload for lease in leases]
                store.settle([tampu.Ack(lease) for lease in leases])
    return order
