"""Plans on 100,000 messages: in every statement of the hot path an index does the finding and the order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import tampu
from tampu import Ack, Nack, NewMessage, Reject, Release
from tampu.broker import access
from tampu.engines.port import Sweep, Trim
from tampu.engines.postgres import migrations
from tampu.engines.postgres.database import statements
from tests.conformance.harness import FakeClock
from tests.servers.postgres import databases

ROWS = 100_000
BATCH = 100
SMALL = {"queue", "meta", "document", "revision", "journal_end", "seat"}
"""Tables that grow with queues and settings, not with messages."""


SETTINGS = {
    "log_min_duration": "0", "log_analyze": "on", "log_buffers": "on", "log_format": "json", "log_level": "notice",
}  # fmt: skip


class PlanStore:
    """A queue whose session tells the plan of each statement as it ran."""

    def __init__(self, *, vacuumed: bool) -> None:
        self.clock = FakeClock()
        url = databases.server.url(schema="plans")
        with psycopg.connect(databases.server.url(), autocommit=True) as db:
            db.execute("DROP SCHEMA IF EXISTS plans CASCADE")
            migrations.migrate(db, "plans")
            if vacuumed:
                db.execute("VACUUM (ANALYZE)")
        self.q = tampu.open(url, maintenance=False, clock=self.clock)
        engine: Any = access.engine(self.q)
        self._db = engine._db.connection
        self._names = {" ".join(text.decode().split()): n for n, text in statements(engine.place.schema).items()}
        self._said: list[str] = []
        self._db.execute("LOAD 'auto_explain'")
        self._db.add_notice_handler(lambda notice: self._said.append(notice.message_primary))

    def listen(self) -> None:
        for name, value in SETTINGS.items():
            self._db.execute(f"SET auto_explain.{name} = '{value}'")
        self._said.clear()

    def plans(self) -> dict[str, Any]:
        """The plan of each statement since `listen`."""
        self._db.execute("SET auto_explain.log_min_duration = -1")
        found = {}
        for text in self._said:
            told = json.loads(text[text.index("{") :])
            name = self._names.get(" ".join(told["Query Text"].split()))
            if name is not None:
                found[name] = told["Plan"]
        return found


@pytest.fixture(scope="module", params=["new tables", "tables known to be empty"])
def store(request: pytest.FixtureRequest) -> Iterator[PlanStore]:
    """Messages in every state, in two queues. The session has prepared its statements when there were none."""
    made = PlanStore(vacuumed=request.param != "new tables")
    q = made.q
    q.queues.put("ranked", ordering="priority")
    for _ in range(ROWS // 10_000):
        q.publish_many("jobs", [b"x"] * 10_000)
    for name in ("jobs", "ranked"):
        q.publish_many(name, [NewMessage(n, ttl=10**6, priority=n % 7) for n in range(5_000)])
        q.publish_many(name, [NewMessage(n, delay=1000 + n) for n in range(5_000)])
        leases = q.claim(name, limit=4_000, lease=10**6)
        q.settle([Ack(lease, result=1) for lease in leases[:1_000]])
        q.settle([Reject(lease, error="x") for lease in leases[1_000:2_000]])
        q.publish_many(name, [NewMessage(n, hold="x", key=str(n), idempotency_key=f"{name}{n}") for n in range(1_000)])
    yield made
    q.close()


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _check(plans: dict[str, Any], batch: int = BATCH) -> None:
    assert plans
    for name, plan in plans.items():
        for node in _nodes(plan):
            kind, table = node["Node Type"], node.get("Relation Name")
            assert kind != "Seq Scan" or table in SMALL, f"{name} scans {table}"
            if table is not None and table not in SMALL and "Scan" in kind:
                looked = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
                assert looked <= 3 * batch, f"{name}: {kind} looked at {looked} rows of {table}"
        touched = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        assert touched <= 60 * batch, f"{name} touched {touched} pages"


@pytest.mark.parametrize("queue", ["jobs", "ranked"])
def test_publish_claim_and_settle_cost_what_the_batch_costs(store: PlanStore, queue: str) -> None:
    q = store.q
    store.listen()
    q.publish_many(queue, [b"x"] * BATCH)
    q.publish_many(queue, [NewMessage(n, ttl=10**6, delay=5) for n in range(BATCH)])
    leases = q.claim(queue, limit=BATCH)
    quarter = BATCH // 4
    q.settle([Ack(lease, result=1) for lease in leases[:quarter]])
    q.settle([Nack(lease, error="x", delay=50) for lease in leases[quarter : 2 * quarter]])
    q.settle([Release(lease) for lease in leases[2 * quarter : 3 * quarter]])
    q.settle([Ack(lease) for lease in leases[3 * quarter :]])
    _check(store.plans())


def test_keys_ids_and_groups_are_looked_up(store: PlanStore) -> None:
    q = store.q
    store.listen()
    q.queues.put("groups", group_order=True)
    q.publish_many("groups", [NewMessage(n, group=str(n % 5)) for n in range(BATCH)])
    q.publish_many("jobs", [NewMessage(n, key=str(n), idempotency_key=f"k{n}") for n in range(BATCH)])
    ids = [m.id for m in q.publish_many("jobs", range(BATCH))]
    q.cancel(*ids)
    q.queues.put("groups", group_order=False, group_concurrency=2)
    q.nack(q.claim("groups")[0], delay=5)
    q.ack(q.claim("groups")[0])
    q.queues.put("groups", group_concurrency=0, group_rate=10)
    q.publish_many("groups", [NewMessage(n, group=str(n % 5)) for n in range(BATCH)])
    q.nack(q.claim("groups")[0], delay=0)
    q.ack(q.claim("groups")[0])
    q.queues.put("groups", group_rate=20)
    _check(store.plans())


def test_dead_letters_are_replayed_and_purged_by_their_index(store: PlanStore) -> None:
    q = store.q
    store.listen()
    q.replay("jobs", where={}, limit=BATCH)
    access.core(store.q).coalescer.submit(tampu.engines.port.Purge("default", "jobs", tampu.State.DEAD, BATCH))
    access.core(store.q).coalescer.submit(tampu.engines.port.Purge("default", "jobs", tampu.State.DONE, BATCH))
    _check(store.plans())


def test_a_sweep_that_finds_nothing_looks_at_nothing(store: PlanStore) -> None:
    store.listen()
    access.core(store.q).coalescer.submit(Sweep(BATCH))
    access.core(store.q).coalescer.submit(Trim({}, 10**12, 10**15, BATCH))
    _check(store.plans(), batch=40)


def test_turns_are_looked_up(store: PlanStore) -> None:
    q = store.q
    q.queues.put("turns", ordering="fair")
    q.publish("turns", 1)
    store.listen()
    for _ in range(3):
        q.publish_many("turns", [NewMessage(n, group=str(n % 5)) for n in range(BATCH)])
        q.settle([Ack(lease) for lease in q.claim("turns", limit=BATCH)])
    q.nack(q.claim("turns")[0], delay=0)
    _check(store.plans())
