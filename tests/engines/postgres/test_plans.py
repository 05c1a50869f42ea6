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
from tampu.engines.port import Purge, Sweep, Trim
from tampu.engines.postgres import migrations
from tampu.engines.postgres.database import statements
from tampu.engines.sql import read
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
        self.store = tampu.open(url, maintenance=False, clock=self.clock)
        engine: Any = access.engine(self.store)
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
            explained = json.loads(text[text.index("{") :])
            name = self._names.get(" ".join(explained["Query Text"].split()))
            if name is not None:
                found[name] = explained["Plan"]
        return found


@pytest.fixture(scope="module", params=["new tables", "tables known to be empty"])
def planned(request: pytest.FixtureRequest) -> Iterator[PlanStore]:
    """Messages in every state, in two queues. The session has prepared its statements when there were none."""
    made = PlanStore(vacuumed=request.param != "new tables")
    store = made.store
    store.queues.put("ranked", ordering="priority")
    for _ in range(ROWS // 10_000):
        store.publish_many("jobs", [b"x"] * 10_000)
    for name in ("jobs", "ranked"):
        store.publish_many(name, [NewMessage(n, ttl=10**6, priority=n % 7) for n in range(5_000)])
        store.publish_many(name, [NewMessage(n, delay=1000 + n) for n in range(5_000)])
        leases = store.claim(name, limit=4_000, lease=10**6)
        store.settle([Ack(lease, result=1) for lease in leases[:1_000]])
        store.settle([Reject(lease, error="x") for lease in leases[1_000:2_000]])
        store.publish_many(
            name, [NewMessage(n, hold="x", key=str(n), idempotency_key=f"{name}{n}") for n in range(1_000)]
        )
    yield made
    store.close()


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
def test_publish_claim_and_settle_cost_what_the_batch_costs(planned: PlanStore, queue: str) -> None:
    store = planned.store
    planned.listen()
    store.publish_many(queue, [b"x"] * BATCH)
    store.publish_many(queue, [NewMessage(n, ttl=10**6, delay=5) for n in range(BATCH)])
    leases = store.claim(queue, limit=BATCH)
    quarter = BATCH // 4
    store.settle([Ack(lease, result=1) for lease in leases[:quarter]])
    store.settle([Nack(lease, error="x", delay=50) for lease in leases[quarter : 2 * quarter]])
    store.settle([Release(lease) for lease in leases[2 * quarter : 3 * quarter]])
    store.settle([Ack(lease) for lease in leases[3 * quarter :]])
    _check(planned.plans())


def test_keys_ids_and_groups_are_looked_up(planned: PlanStore) -> None:
    store = planned.store
    planned.listen()
    store.queues.put("groups", group_order=True)
    store.publish_many("groups", [NewMessage(n, group=str(n % 5)) for n in range(BATCH)])
    store.publish_many("jobs", [NewMessage(n, key=str(n), idempotency_key=f"k{n}") for n in range(BATCH)])
    ids = [m.id for m in store.publish_many("jobs", range(BATCH))]
    store.cancel(*ids)
    store.queues.put("groups", group_order=False, group_concurrency=2)
    store.nack(store.claim("groups")[0], delay=5)
    store.ack(store.claim("groups")[0])
    store.queues.put("groups", group_concurrency=0, group_rate=10)
    store.publish_many("groups", [NewMessage(n, group=str(n % 5)) for n in range(BATCH)])
    store.nack(store.claim("groups")[0], delay=0)
    store.ack(store.claim("groups")[0])
    store.queues.put("groups", group_rate=20)
    _check(planned.plans())


def test_a_correlation_id_is_looked_up(planned: PlanStore) -> None:
    engine: Any = access.engine(planned.store)
    for start in range(0, 5_000, 1_000):
        news = [NewMessage(n, correlation_id=str(n % 500)) for n in range(start, start + 1_000)]
        planned.store.publish_many("jobs", news)
    planned.listen()
    planned.store.publish_many("jobs", [NewMessage(n, correlation_id="new") for n in range(BATCH)])
    assert len(read.correlated(engine._db, engine.registry, "default", "7", BATCH)) == 10
    access.core(planned.store).coalescer.submit(Purge("default", "jobs", tampu.State.READY, BATCH))
    _check(planned.plans())


def test_dead_letters_are_replayed_and_purged_by_their_index(planned: PlanStore) -> None:
    store = planned.store
    planned.listen()
    store.replay("jobs", where={}, limit=BATCH)
    submit = access.core(planned.store).coalescer.submit
    ids = [message.id for message in store.dead.list(queue="jobs", limit=BATCH)]
    submit(Purge("default", "jobs", tampu.State.DEAD, BATCH, ids=ids[:10]))
    submit(Purge("default", "jobs", tampu.State.DEAD, BATCH, until_us=planned.clock.now()))
    replay = store.dead.replay(queue="jobs", limit=BATCH)
    assert store.dead.undo(replay.id or "").undone == BATCH
    submit(Purge("default", "jobs", tampu.State.DEAD, BATCH))
    access.core(planned.store).coalescer.submit(Purge("default", "jobs", tampu.State.DONE, BATCH))
    _check(planned.plans())


def test_a_sweep_that_finds_nothing_looks_at_nothing(planned: PlanStore) -> None:
    planned.listen()
    access.core(planned.store).coalescer.submit(Sweep(BATCH))
    access.core(planned.store).coalescer.submit(Trim({}, 10**12, 10**15, BATCH))
    _check(planned.plans(), batch=40)


def test_turns_are_looked_up(planned: PlanStore) -> None:
    store = planned.store
    store.queues.put("turns", ordering="fair")
    store.publish("turns", 1)
    planned.listen()
    for _ in range(3):
        store.publish_many("turns", [NewMessage(n, group=str(n % 5)) for n in range(BATCH)])
        store.settle([Ack(lease) for lease in store.claim("turns", limit=BATCH)])
    store.nack(store.claim("turns")[0], delay=0)
    _check(planned.plans())
