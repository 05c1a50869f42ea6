"""A history: one caller uses a queue in every way on a recorded disk; the whole state is noted after each call."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import tampu
from tampu.broker import access
from tampu.broker.core import Core
from tampu.engines.port import Sweep, Trim
from tests.faults.disk import Disk, RecordedEngine

SECOND = 1_000_000
DAY = 86_400 * SECOND
TABLES = (
    "counter", "queue", "message", "ready", "delayed", "leased", "claim", "held", "lane", "fair", "dead", "ended",
    "ending", "expiry", "key", "idempotency", "correlation", "failure", "result", "journal", "document",
)  # fmt: skip


_WITHOUT = {"document": " WHERE kind != 'audit'", "counter": " WHERE (q, kind) != (0, 2)"}


class Clock:
    def __init__(self) -> None:
        self.at = 1_750_000_000 * SECOND

    def now(self) -> int:
        return self.at


@dataclass
class Moment:
    """After one call returned: where the log stood before and then, and all that the tables hold."""

    verb: str
    began: int
    ended: int
    state: bytes
    receipts: tuple[str, ...] = ()
    """Receipts that this call gave out."""


@dataclass
class History:
    disk: Disk
    opened: int
    moments: list[Moment]
    receipts: set[str] = field(default_factory=set)


def contents(db: Any) -> bytes:
    """A digest of every row of every table, without the audit trail: a record is stored before its act.

    It also changes the revision.
    """
    digest = hashlib.blake2b(digest_size=16)
    for table in TABLES:
        for row in db.execute(f"SELECT * FROM tampu_{table}{_WITHOUT.get(table, '')}"):
            digest.update(repr((table, *row)).encode())
    return digest.digest()


class Caller:
    """Makes one call after the other, as a seeded die says."""

    def __init__(self, store: tampu.Store, clock: Clock, rng: random.Random) -> None:
        self.store, self.clock, self.rng = store, clock, rng
        self.leases: list[tampu.Lease] = []
        self.ids: list[str] = []

    def step(self) -> tuple[str, tuple[str, ...]]:
        verb = self.rng.choices(
            ("publish", "batch", "claim", "settle", "extend", "cancel", "sweep", "purge", "trim", "config"),
            (6, 4, 7, 7, 2, 2, 3, 1, 1, 1),
        )[0]
        self.clock.at += self.rng.randint(0, 3 * SECOND)
        return verb, tuple(getattr(self, verb)() or ())

    def publish(self) -> None:
        rng = self.rng
        self.ids.append(
            self.store.publish(
                rng.choice(("a", "b")),
                "x" * rng.choice((10, 200, 9000)),
                key=rng.choice((None, "k1", "k2")),
                delay=rng.choice((None, 2)),
                ttl=rng.choice((None, 20)),
                group=rng.choice((None, "g")),
                correlation_id=rng.choice((None, "c")),
                hold=rng.choice((None, None, None, "wait")),
                max_attempts=rng.choice((None, 1)),
            ).id
        )

    def batch(self) -> None:
        made = self.store.publish_many(self.rng.choice(("a", "b")), ["y" * 300] * self.rng.randint(2, 12))
        self.ids.extend(m.id for m in made)

    def claim(self) -> list[str]:
        got = self.store.claim(["a", "b"], limit=self.rng.randint(1, 8), lease=self.rng.choice((2, 15)))
        self.leases.extend(got)
        return [lease.receipt for lease in got]

    def settle(self) -> None:
        self.rng.shuffle(self.leases)
        count = self.rng.randint(1, 6)
        chosen, self.leases = self.leases[:count], self.leases[count:]
        kinds: tuple[Any, ...] = (tampu.Ack, tampu.Ack, tampu.Nack, tampu.Reject, tampu.Release)
        self.store.settle([self.rng.choice(kinds)(lease) for lease in chosen])

    def extend(self) -> None:
        for lease in self.leases[:1]:
            try:
                self.store.extend(lease, self.rng.choice((1, 30)))
            except tampu.LeaseLost:
                self.leases.remove(lease)

    def cancel(self) -> None:
        self.store.cancel(*self.rng.sample(self.ids, min(2, len(self.ids))))

    def sweep(self) -> None:
        access.core(self.store).coalescer.submit(Sweep(1000))

    def purge(self) -> None:
        self.store.purge("a", state=self.rng.choice(("done", "ready", "dead")))

    def trim(self) -> None:
        access.core(self.store).coalescer.submit(Trim({}, 30 * SECOND, DAY, 1000))

    def config(self) -> None:
        self.store.queues.put("a", max_attempts=self.rng.randint(2, 5))


def live(folder: Path, seed: int, calls: int, *, durability: str = "full", checkpoint_pages: int = 30) -> History:
    """Open a new file on a recorded disk and make so many calls. The same seed gives the same calls and the same log.

    Receipts are drawn from the seed too: the order in which leases that ran out come back depends on them.
    """
    with mock.patch("secrets.randbits", random.Random(seed).getrandbits):
        return _live(folder, seed, calls, durability, checkpoint_pages)


def _live(folder: Path, seed: int, calls: int, durability: str, checkpoint_pages: int) -> History:
    disk = Disk(f"recorded-{seed}-{durability}", checkpoint_pages)
    clock = Clock()
    engine = RecordedEngine(str(folder / "jobs.db"), disk, clock=clock, durability=durability)
    store = tampu.Store(Core(engine), "default", on_close=engine.close)
    try:
        store.queues.put("*", backoff=[1, 4])
        store.queues.put("b", group_order=True)
        store.queues.put("a", ordering="priority", ageing=5)
        history = History(disk, disk.mark("open"), [])
        db = engine._db
        caller = Caller(store, clock, random.Random(seed))
        history.moments.append(Moment("open", 0, history.opened, contents(db)))
        for number in range(calls):
            began = disk.mark(f"call {number}")
            verb, receipts = caller.step()
            ended = disk.mark(f"acknowledged {number}: {verb}")
            history.receipts.update(receipts)
            history.moments.append(Moment(verb, began, ended, contents(db), receipts))
    finally:
        store.close()
        disk.close()
    return history
