"""Through a real pgbouncer in transaction mode. `make test-versions` runs the conformance suite through it too."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import tampu
from tampu.broker import access
from tests.conformance.harness import counts, payloads, until, waits
from tests.servers import postgres
from tests.servers.pgbouncer import Pgbouncer
from tests.servers.postgres import Postgres


@pytest.fixture
def pooler(server: Postgres) -> Iterator[Pgbouncer]:
    made = Pgbouncer(server, sessions=3)
    yield made.start()
    made.remove()


@pytest.fixture
def pooled(pooler: Pgbouncer) -> str:
    schema = postgres.databases.empty()
    return pooler.url(schema, schema=schema)


def test_the_pooler_is_noticed_and_nothing_is_left_in_its_sessions(pooled: str, db: psycopg.Connection[Any]) -> None:
    with tampu.open(pooled, maintenance=False) as store:
        store.publish_many("jobs", range(300))
        while leases := store.claim("jobs", limit=50):
            store.settle([tampu.Ack(lease) for lease in leases])
        assert counts(store, "jobs") == {"done": 300}
        engine: Any = access.engine(store)
        connection = engine._db.connection
        for _ in range(10):  # whichever session it is
            assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
            assert connection.execute("SHOW enable_seqscan").fetchone() == ("on",)
        assert [level for what, level, _ in store.check() if what == "connection"] == ["warn"]


def test_many_clients_share_few_sessions(pooled: str) -> None:
    """More than pgbouncer has sessions, each with claims that wait."""
    with ThreadPoolExecutor(8) as pool:
        clients = [tampu.open(pooled, maintenance=n == 0) for n in range(8)]
        try:
            waiting = [pool.submit(store.claim, "jobs", wait=240) for store in clients]
            for store in clients:
                until(lambda store=store: waits(store))  # type: ignore[misc]  # bound now
            clients[0].publish_many("jobs", range(8))
            leases = [lease for claim in waiting for lease in claim.result(60)]
            assert sorted(payloads(leases)) == list(range(8))
            for store, lease in zip(clients, leases, strict=True):
                store.ack(lease)
            assert counts(clients[0], "jobs") == {"done": 8}
        finally:
            for store in clients:
                store.close()


def test_lost_sessions_behind_the_pooler_are_not_noticed(pooled: str) -> None:
    with tampu.open(pooled, maintenance=False) as store:
        for turn in range(3):
            store.publish("jobs", turn)
            postgres.databases.end_sessions()
            assert store.stats("jobs").ready == turn + 1


def test_a_restart_of_the_pooler_is_waited_for(pooled: str, pooler: Pgbouncer) -> None:
    with tampu.open(pooled) as store, tampu.open(pooled, maintenance=False) as other, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.claim, "jobs", wait=240)
        until(lambda: waits(store))
        pooler.kill()
        publishing = ThreadPoolExecutor(1).submit(other.publish, "jobs", "hello")
        pooler.start()
        assert publishing.result(60).payload == "hello"
        assert payloads(waiting.result(60)) == ["hello"]


def test_the_user_s_transaction_is_joined_through_the_pooler(pooled: str, pooler: Pgbouncer) -> None:
    with tampu.open(pooled, maintenance=False) as store:
        store.queues.put("jobs", max_attempts=5)
        with psycopg.connect(pooler.url(), prepare_threshold=None) as mine:
            mine.execute("CREATE TEMP TABLE orders (n int) ON COMMIT DROP")
            with store.transaction(mine) as tx:
                tx.publish("jobs", 1)
            assert counts(store, "jobs") == {}
            mine.commit()
        assert counts(store, "jobs") == {"ready": 1}
