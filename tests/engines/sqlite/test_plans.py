"""Plans: in every statement of the hot path an index does the finding and the order. No scan, no sort."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tampu import Ack, Nack, NewMessage, Reject, Release, State
from tampu.broker.core import Core
from tampu.broker.store import Store
from tampu.engines.port import Load, Purge, Sweep, Trim
from tampu.engines.sqlite import SqliteEngine
from tampu.engines.sqlite.database import statements
from tampu.model.values import pack_payload
from tests.conformance.harness import FakeClock

ROWS = 2000
SMALL = {"tampu_queue", "tampu_meta", "tampu_counter", "tampu_document"}
"""Tables that grow with queues and settings, not with messages."""
GIVEN = {"j", "json_each", "CONSTANT", "w"}
"""The batch itself, handed in as one parameter, and the few states a settled message may be in."""
WALKED = {
    "SELECT first, at FROM tampu_journal ORDER BY first LIMIT",  # the oldest records, in the order of the key
    "SELECT first, n, at, q, body FROM tampu_journal",  # a reader walks the journal from its position
    "FROM tampu_leased WHERE q =",  # as many rows as work is in hand; an index would cost every claim and ack
    "SELECT max(first) FROM tampu_journal",
}


class PlanStore:
    """A queue whose statements are written down."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.seen: list[str] = []
        self.engine = SqliteEngine(str(path), clock=self.clock, durability="process", connect=self._connect)
        self.seen.clear()  # the making of the tables
        self.core = Core(self.engine)
        self.store = Store(self.core, "default", on_close=self.engine.close)

    def _connect(self, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = sqlite3.connect(*args, **kwargs)
        db.set_trace_callback(self.seen.append)
        return db

    def plans(self) -> dict[str, list[str]]:
        """The plan of each statement since the last time."""
        seen, self.seen[:] = list(dict.fromkeys(self.seen)), []
        db = sqlite3.connect(self.engine.path)
        plans = {}
        for sql in seen:
            if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", sql) and "sqlite_master" not in sql:
                plans[sql] = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")]
        db.close()
        return plans


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanStore]:
    """Thousands of messages in every state, in several queues and tenants."""
    made = PlanStore(tmp_path_factory.mktemp("plans") / "jobs.db")
    store = made.store
    other = Store(made.core, "other", on_close=lambda: None)
    store.queues.put("groups", group_order=True)
    store.queues.put("turns", ordering="fair")
    for tenant in (store, other):
        for name in ("jobs", "more"):
            tenant.publish_many(name, [NewMessage(n, ttl=10**6) for n in range(ROWS)])
            leases = tenant.claim(name, limit=ROWS // 2, lease=10**6)
            third = len(leases) // 4
            tenant.settle([Ack(lease, result=1) for lease in leases[:third]])
            tenant.settle([Reject(lease, error="x") for lease in leases[third : 2 * third]])
            tenant.publish_many(name, [NewMessage(n, delay=1000 + n) for n in range(ROWS)])
            tenant.publish_many(
                name, [NewMessage(n, hold="x", key=str(n), idempotency_key=f"{name}{n}") for n in range(ROWS // 4)]
            )
    store.publish_many("groups", [NewMessage(n, group=str(n % 50)) for n in range(ROWS // 2)])
    made.plans()
    yield made
    store.close()


def _check(plans: dict[str, list[str]]) -> None:
    assert plans
    for sql, steps in plans.items():
        for step in steps:
            scan = re.match(r"SCAN (\S+)", step)
            if scan and scan[1] not in SMALL | GIVEN:
                assert any(known in sql for known in WALKED), (sql, steps)
            assert "AUTOMATIC" not in step, (sql, steps)
            if "TEMP B-TREE" in step:
                # Harmless only over the batch itself, which is as long as the caller made it.
                assert "json_each" in sql, (sql, steps)


def test_publishing_uses_indexes(planned: PlanStore) -> None:
    store = planned.store
    store.publish("jobs", 1)
    store.publish_many("jobs", [NewMessage(n, delay=5 * n, ttl=50 + n, priority=n) for n in range(20)])
    store.publish_many("jobs", [NewMessage(n, key=str(n), idempotency_key=f"i{n}") for n in range(5)])
    store.publish("jobs", 1, key="1")
    store.publish("jobs", 1, id="2f1e9c1e-7d8c-4c55-9a52-4f1a6a1b2c3d")
    store.publish_many("jobs", [NewMessage(n, correlation_id="c") for n in range(20)])
    store.publish("groups", 1, group="1")
    store.publish_many("turns", [NewMessage(n, group=str(n)) for n in range(20)])
    store.nack(store.claim("turns")[0], delay=0)
    _check(planned.plans())


def test_loading_uses_indexes(planned: PlanStore) -> None:
    id_prefix, body = bytes.fromhex("0123456789ab8cde8f0123"), pack_payload("t", b"1", "application/json")
    for first in (0, 5):
        call = Load("default", "jobs", id_prefix, range(first, first + 10), body * 10, range(0, 1000, len(body))[:11],
                    ["t"] * 10, 3, max_depth=10**6)  # fmt: skip
        planned.core.coalescer.submit(call)
    plans = planned.plans()
    assert any("INDEX tampu_message_id" in step for steps in plans.values() for step in steps)
    _check(plans)


def test_claiming_and_extending_use_indexes(planned: PlanStore) -> None:
    for name in ("jobs", "groups"):
        for lease in planned.store.claim(name, limit=20, worker="w"):
            planned.store.extend(lease, 60)
            planned.store.release(lease)
    plans = planned.plans()
    assert any(sql.startswith("SELECT r.seq") or "tampu_ready" in sql for sql in plans)
    _check(plans)


def test_settling_uses_indexes(planned: PlanStore) -> None:
    store = planned.store
    for name in ("jobs", "groups"):
        leases = store.claim(name, limit=12)
        kinds: list[Any] = [Ack, Nack, Reject, Release]
        settlements = [kinds[n % 4](lease) for n, lease in enumerate(leases)]
        store.settle(settlements)
        store.settle(settlements)
        store.ack(store.claim(name)[0], result=1)
    _check(planned.plans())


def test_sweeping_uses_indexes(planned: PlanStore) -> None:
    planned.store.claim("jobs", limit=50, lease=5)
    planned.clock.advance(1200)
    planned.core.coalescer.submit(Sweep(500))
    planned.engine.next_due()
    _check(planned.plans())


def test_steering_uses_indexes(planned: PlanStore) -> None:
    store = planned.store
    page = store.messages("jobs", state="ready", limit=10).messages
    dead = store.messages("jobs", state="dead", limit=10).messages
    held = store.messages("jobs", state="held", limit=5).messages
    planned.plans()
    store.cancel(*(m.id for m in page), store.claim("jobs")[0].id)
    store.replay("jobs", ids=[m.id for m in dead])
    store.free(*(m.id for m in held))
    store.get(page[0].id)
    _check(planned.plans())


def test_trimming_and_purging_use_indexes(planned: PlanStore) -> None:
    planned.clock.advance(10)
    planned.core.coalescer.submit(Trim({}, 1, 1, 100))
    ids = [message.id for message in planned.store.dead.list(queue="jobs", limit=5)]
    planned.store.dead.purge(ids)
    planned.core.coalescer.submit(Purge("default", "jobs", State.DEAD, 5, until_us=planned.clock.now()))
    replay = planned.store.dead.replay(queue="jobs", limit=5)
    planned.store.dead.undo(replay.id or "")
    planned.store.purge("more", state=["dead", "done", "held"])
    _check(planned.plans())


def test_reading_uses_indexes(planned: PlanStore) -> None:
    store = planned.store
    for state in ("ready", "delayed", "held", "dead", "done", "leased"):
        page = store.messages("jobs", state=state, limit=5)
        if page.cursor:
            store.messages("jobs", state=state, limit=5, after=page.cursor)
    store.stats()
    store.stats("jobs")
    assert len(store.trace("c", limit=5)) == 5
    store.journal(limit=10)
    store.journal(after=store.journal(limit=50).position, limit=10)
    _check(planned.plans())


HOT = {
    **{
        name: statements()[name][0].sql
        for name in (
            "select_first", "lease_first", "find_run", "run_at", "next_runs", "delete_runs_upto", "select_claim",
            "end_claim", "delete_claim",
            "select_leases", "delete_leases", "lock_due_delayed", "lock_due_claims", "select_expired",
            "select_next_due", "page_delayed", "page_held", "page_dead", "next_in_group", "select_slots",
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(HOT))
def test_each_hot_statement_is_a_search_in_the_order_of_its_index(planned: PlanStore, name: str) -> None:
    sql = HOT[name]
    db = sqlite3.connect(planned.engine.path)
    numbered = [int(n) for n in re.findall(r"\?(\d+)", sql)]
    values = [1] * (max(numbered) if numbered else sql.count("?"))
    steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    db.close()
    assert steps
    for step in steps:
        assert "TEMP B-TREE" not in step, steps
        scan = re.match(r"SCAN (\S+)", step)
        assert not scan or scan[1] in GIVEN, steps


def test_this_check_can_fail(planned: PlanStore) -> None:
    planned.engine._db.execute("SELECT seq FROM tampu_ready WHERE attempts = 7").fetchall()
    with pytest.raises(AssertionError):
        _check(planned.plans())
    planned.engine._db.execute("SELECT seq FROM tampu_delayed WHERE q = 1 ORDER BY attempts").fetchall()
    with pytest.raises(AssertionError):
        _check(planned.plans())
