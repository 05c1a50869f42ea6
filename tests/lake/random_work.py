"""Really works queues, by chance from a seed, and tells what the journal and bronze would hold of it."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import tampu
from tampu.broker import access, validate
from tampu.broker.settings import resolve
from tampu.broker.store import Store
from tampu.engines import port
from tampu.model.config import BUILT_IN
from tampu.model.errors import TampuError
from tampu.model.journal import Transition
from tampu.model.message import Lease
from tampu.model.states import TERMINAL, State
from tampu.model.values import pack_body
from tests.conformance.harness import Harness, Kit

Row = dict[str, Any]
TENANTS = ("default", "acme")
QUEUES = ("emails", "reports", "slow")
_FILE = Kit(name="file", url=lambda folder: str(folder / "jobs.db"))


class Worked(NamedTuple):
    events: list[Row]
    """As in bronze.events, in the order of the journal."""
    messages: list[Row]
    """As in bronze.messages."""


def event(t: Transition) -> Row:
    return {
        "partition": t.partition, "offset": t.offset, "at": t.at, "queue": t.queue, "verb": t.verb, "id": t.id,
        "state": None if t.state is None else str(t.state), "attempt": t.attempt, "type": t.type, "worker": t.worker,
        "detail": t.detail, "fingerprint": t.fingerprint, "run": "r", "day": t.at.date(), "tenant": t.tenant,
    }  # fmt: skip


def ended(e: Row, message: tampu.Message | None) -> Row:
    """The row of bronze.messages of a message that this event ended; None: it was removed meanwhile."""
    row: Row = {
        "id": e["id"], "queue": e["queue"], "state": e["state"], "ended_at": e["at"], "missing": message is None,
        "ended_partition": e["partition"], "ended_offset": e["offset"], "run": "r", "day": e["day"],
        "tenant": e["tenant"],
    }  # fmt: skip
    if message is not None:
        row |= {
            "type": message.type, "payload": message.raw, "content_type": message.content_type,
            "created_at": message.created_at, "attempts": message.attempts, "correlation_id": message.correlation_id,
            "causation_id": message.causation_id, "parent_id": message.parent_id, "group": message.group,
            "source": message.source,
            "result": None if message.result_raw is None else msgspec.json.encode(message.result).decode(),
        }  # fmt: skip
    return row


class Working:
    """A house full of workers; each step is one of them doing something."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.registry = Harness(_FILE, folder)
        self.queues = {tenant: self.registry.open(tenant=tenant) for tenant in TENANTS}
        for store in self.queues.values():
            store.queues.put("*", backoff=20, max_attempts=3)
            store.queues.put("slow", group_order=True)
        self.leases: list[tuple[Store, Lease]] = []
        self.own = [str(uuid.UUID(int=self.chance.getrandbits(128), version=4)) for _ in range(4)]
        self.worked = Worked([], [])

    def work(self, steps: int) -> Worked:
        acts: list[tuple[Callable[[Store], object], int]] = [
            (self.publish, 10), (self.claim, 10), (self.settle, 18), (self.steer, 4), (self.replay, 2),
            (self.purge, 1), (self.rest, 8), (self.end, 1),
        ]  # fmt: skip
        doing = [act for act, weight in acts for _ in range(weight)]
        for _ in range(steps):
            store = self.queues[self.chance.choice(TENANTS)]
            # A lease that ran out, a message that is not there any more: that is life.
            with contextlib.suppress(TampuError):
                self.chance.choice(doing)(store)
            self.listen()
        return self.worked

    def listen(self) -> None:
        """Take down what the journal tells since the last time."""
        after = self.worked.events[-1]["offset"] if self.worked.events else 0
        pages = [store.journal(after=after, limit=100_000).transitions for store in self.queues.values()]
        news = sorted((event(t) for page in pages for t in page), key=lambda e: e["offset"])
        self.worked.events.extend(news)
        for e in news:
            if e["state"] in TERMINAL:
                try:
                    message = self.queues[e["tenant"]].get(e["id"])
                except tampu.NotFound:
                    message = None
                self.worked.messages.append(ended(e, message))

    def publish(self, store: Store) -> None:
        pick = self.chance
        queue = pick.choice(QUEUES)
        more: Row = {}
        if pick.random() < 0.15:
            more["delay"] = pick.choice([5, 300])
        if pick.random() < 0.15:
            more["ttl"] = pick.choice([30, 4000])
        if pick.random() < 0.1:
            more["key"] = f"k{pick.randrange(2)}"
        if pick.random() < 0.1:
            more["hold"] = "wait"
        if pick.random() < 0.1:
            more["id"] = pick.choice(self.own)
        if queue == "slow":
            more["group"] = f"g{pick.randrange(2)}"
        if pick.random() < 0.3:
            more |= {"correlation_id": "c1", "causation_id": "c2", "parent_id": str(uuid.UUID(int=7)), "source": "é"}
        kind = pick.choice(["mail.send", "report.build"])
        store.publish(queue, {"n": "é" * pick.randrange(9)}, type=kind, max_attempts=pick.choice([1, 2, 3]), **more)

    def claim(self, store: Store) -> None:
        worker = self.chance.choice(["w1", "w2", "w3", None])
        some = store.claim(list(QUEUES), limit=self.chance.randrange(1, 5), lease=300, worker=worker)
        self.leases += [(store, lease) for lease in some]

    def settle(self, _: Store) -> None:
        if not self.leases:
            return
        store, lease = self.leases.pop(self.chance.randrange(len(self.leases)))
        way = self.chance.choice(["ack", "ack", "ack", "nack", "nack", "reject", "release", "lose", "nack now", "hold"])
        number = self.chance.randrange(1000)
        error = self.chance.choice([f"SMTP {number}", f"no such file '{number}'\nmore", None])
        if way == "ack":
            store.ack(lease, self.chance.choice([None, {"sent": number, "to": "é"}]))
        elif way == "nack":
            store.nack(lease, error)
        elif way == "nack now":
            store.nack(lease, error, delay=0)
        elif way == "reject":
            store.reject(lease, "oversize", error)
        elif way == "release":
            store.release(lease)
        elif way == "hold":
            self.run(
                store, port.Settle(store.tenant, [port.SettleItem("release", lease.queue, lease.receipt, hold="ask")])
            )

    def steer(self, store: Store) -> None:
        state = self.chance.choice(["ready", "held", "delayed", "leased"])
        found = list(store.messages(self.chance.choice(QUEUES), state=state, limit=20))
        if not found:
            return
        one = self.chance.choice(found)
        way = self.chance.choice(["plain", "plain", "policy"])
        if way == "policy" and state == "held":
            body = pack_body(msgspec.structs.replace(one.body, type="edited", payload=b'"edited"'))
            self.run(store, port.Free(store.tenant, [one.id], [body], actor="ann"))
        elif way == "policy":
            self.run(store, port.Cancel(store.tenant, [one.id], dead="refused", error="not like this", actor="ann"))
        elif state == "held":
            store.free(found[0].id)
        else:
            store.cancel(one.id)

    @staticmethod
    def run(store: Store, call: port.Call) -> None:
        """What only policies do."""
        access.core(store).engine.run([call])

    def end(self, store: Store) -> None:
        """A message that ends as it is published."""
        state = self.chance.choice([State.DEAD, State.CANCELLED])
        new = tampu.NewMessage("é", type="mail.send", hold="by a rule")
        item = validate.item("emails", resolve(BUILT_IN), new)
        ending = port.Ending(state, "schema_invalid", self.chance.choice([None, "no field to"]))
        self.run(store, port.Publish(store.tenant, "emails", [msgspec.structs.replace(item, ends=ending)]))

    def replay(self, store: Store) -> None:
        store.replay(self.chance.choice(QUEUES), where={}, limit=3)

    def purge(self, store: Store) -> None:
        store.purge(self.chance.choice(QUEUES), state=self.chance.choice(["ready", "done", "dead", "cancelled"]))

    def rest(self, _: Store) -> None:
        self.registry.clock.advance(self.chance.choice([0.25, 3.000001, 7, 40, 60, 200, 1500, 6 * 3600]))
        if self.chance.random() < 0.7:
            self.registry.sweep()

    def close(self) -> None:
        self.registry.close()


def worked(folder: Path, seed: int, steps: int) -> Worked:
    working = Working(folder, seed)
    try:
        return working.work(steps)
    finally:
        working.close()
