"""Plans on 100,000 messages: in every statement of the hot path an index does the finding and the order.

Each statement that a verb sends is explained, and what the server read for the verb is counted as it ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu import Ack, Nack, NewMessage, Reject, Release
from tampu.broker import access
from tampu.engines.port import Purge, Sweep, Trim
from tampu.engines.sql import read
from tests.conformance.harness import FakeClock
from tests.servers.mariadb import databases

ROWS = 100_000
BATCH = 100
SMALL = re.compile(r"tampu_(queue|meta|document|revision|journal_end|seat|latch)\b")
"""Tables that grow with queues and settings, not with messages."""
EXPLAINED = re.compile(rb"(SELECT|DELETE|UPDATE|INSERT\b.*\bSELECT)\b", re.DOTALL)
READS = ("Handler_read_first", "Handler_read_key", "Handler_read_last", "Handler_read_next", "Handler_read_prev")


class PlanStore:
    """A queue whose session tells what it sends, and how much was read for it."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self.clock = FakeClock()
        self.store = tampu.open(databases.url(), maintenance=False, clock=self.clock)
        engine: Any = access.engine(self.store)
        self.wire = engine._db
        self._said: list[bytes] = []
        send = self.wire._send

        def heard(text: bytes, answer: Any) -> None:
            self._said.append(text)
            send(text, answer)

        self.wire._send = heard

    def listen(self) -> None:
        self._said.clear()
        self._before = self._status()

    def _status(self) -> dict[str, int]:
        with self.wire.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS WHERE variable_name LIKE 'Handler_read%' OR variable_name LIKE 'Sort%'")
            return {name: int(value) for name, value in cursor.fetchall()}

    def check(self, batch: int = BATCH, *, sorts: bool = False, only: re.Pattern[bytes] = EXPLAINED) -> None:
        after = self._status()
        said = [text for text in self._said if EXPLAINED.match(text) and only.search(text)]
        assert said
        read = sum(after[name] - self._before[name] for name in READS)
        assert read <= 60 * batch, f"{read} rows were read"
        with self.wire.cursor() as cursor:
            for text in said:
                cursor.execute(b"EXPLAIN " + text)
                for row in cursor.fetchall():
                    table, kind, extra = str(row[2]), row[3], row[-1] or ""
                    statement = f"{text[:200]!r}: {row}"
                    made = (
                        row[2] is None
                        or table.startswith(("<derived", "<union"))
                        or SMALL.search(text.decode(errors="replace"))
                    )
                    assert made or kind != "ALL", f"scans {statement}"
                    assert sorts or "filesort" not in extra, f"sorts {statement}"
                    assert sorts or "temporary" not in extra, f"writes down {statement}"


@pytest.fixture(scope="module")
def planned() -> Iterator[PlanStore]:
    """Messages in every state, in two queues."""
    made = PlanStore()
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


def test_empty_tables_are_not_scanned_either() -> None:
    """Where a scan would be quicker for one it is slower for many: it waits for every row that somebody has locked."""
    empty = PlanStore()
    empty.store.queues.put("ranked", ordering="priority")
    empty.listen()
    for queue in ("jobs", "ranked"):
        empty.store.publish_many(queue, [NewMessage(n, priority=n) for n in range(3)])
        leases = empty.store.claim(queue, limit=3)
        empty.store.settle([Ack(leases[0]), Nack(leases[1], delay=0), Release(leases[2])])
        empty.store.ack(empty.store.claim(queue)[0])
    empty.check(only=re.compile(rb"tampu_(ready|placed|leased)\b"))
    empty.store.close()


@pytest.mark.parametrize("queue", ["jobs", "ranked"])
def test_a_claim_walks_the_index_and_stops(planned: PlanStore, queue: str) -> None:
    planned.store.claim(queue)
    planned.listen()
    leases = planned.store.claim(queue, limit=BATCH)
    assert len(leases) == BATCH
    planned.check(20)


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
    planned.check()


def test_keys_ids_and_groups_are_looked_up(planned: PlanStore) -> None:
    store = planned.store
    store.queues.put("groups", group_order=True)
    planned.listen()
    store.publish_many("groups", [NewMessage(n, group=str(n % 5)) for n in range(BATCH)])
    store.publish_many("jobs", [NewMessage(n, key=str(n), idempotency_key=f"k{n}") for n in range(BATCH)])
    store.publish_many("jobs", [NewMessage(n, key=str(n), idempotency_key=f"l{n}") for n in range(BATCH)])
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
    planned.check()


def test_a_correlation_id_is_looked_up(planned: PlanStore) -> None:
    engine: Any = access.engine(planned.store)
    for start in range(0, 5_000, 1_000):
        news = [NewMessage(n, correlation_id=str(n % 500)) for n in range(start, start + 1_000)]
        planned.store.publish_many("jobs", news)
    planned.listen()
    planned.store.publish_many("jobs", [NewMessage(n, correlation_id="new") for n in range(BATCH)])
    assert len(read.correlated(engine._db, engine.registry, "default", "7", BATCH)) == 10
    access.core(planned.store).coalescer.submit(Purge("default", "jobs", tampu.State.READY, BATCH))
    planned.check()


def test_dead_letters_are_replayed_and_purged_by_their_index(planned: PlanStore) -> None:
    submit = access.core(planned.store).coalescer.submit
    planned.listen()
    planned.store.replay("jobs", where={}, limit=BATCH)
    ids = [message.id for message in planned.store.dead.list(queue="jobs", limit=BATCH)]
    submit(Purge("default", "jobs", tampu.State.DEAD, BATCH, ids=ids[:10]))
    submit(Purge("default", "jobs", tampu.State.DEAD, BATCH, until_us=planned.clock.now()))
    planned.check()
    planned.listen()
    replay = planned.store.dead.replay(queue="jobs", limit=BATCH)
    assert planned.store.dead.undo(replay.id or "").undone == BATCH
    submit(Purge("default", "jobs", tampu.State.DEAD, BATCH))
    submit(Purge("default", "jobs", tampu.State.DONE, BATCH))
    planned.check()


def test_a_sweep_that_finds_nothing_looks_at_nothing(planned: PlanStore) -> None:
    submit = access.core(planned.store).coalescer.submit
    submit(Trim({}, 10**12, 10**15, BATCH))  # what the journal has to number is numbered
    planned.listen()
    submit(Sweep(BATCH))
    submit(Trim({}, 10**12, 10**15, BATCH))
    planned.check(5, sorts=True)


def test_turns_are_looked_up(planned: PlanStore) -> None:
    store = planned.store
    store.queues.put("turns", ordering="fair")
    store.publish("turns", 1)
    planned.listen()
    for _ in range(3):
        store.publish_many("turns", [NewMessage(n, group=str(n % 5)) for n in range(BATCH)])
        store.settle([Ack(lease) for lease in store.claim("turns", limit=BATCH)])
    store.nack(store.claim("turns")[0], delay=0)
    planned.check()
