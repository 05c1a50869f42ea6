"""A standby takes over: a url that names both servers leads to the one that may be written to, whichever that is."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import tampu
from tests.conformance.harness import payloads, until, waits
from tests.servers.postgres import FAST, Postgres

CAUGHT_UP = "SELECT replay_lsn >= pg_current_wal_insert_lsn() FROM pg_stat_replication"


@pytest.fixture
def pair() -> Iterator[tuple[Postgres, Postgres]]:
    """A server and its standby, which begins as a copy of it."""
    with Postgres(FAST) as primary:
        standby = Postgres({**FAST, "primary_conninfo": f"host=127.0.0.1 port={primary.port} user=postgres"})
        try:
            primary.stop()
            shutil.rmtree(standby.data)
            subprocess.run(["cp", "-a", primary.data, standby.data], check=True)
            (standby.data / "standby.signal").touch()
            primary.start()
            standby.start()
            yield primary, standby
        finally:
            standby.remove()


def test_a_standby_that_takes_over_is_followed(
    pair: tuple[Postgres, Postgres], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("engine", "read_pool"):
        monkeypatch.setattr(f"tampu.engines.sql.{module}._PATIENCE_SECONDS", 240)
    primary, standby = pair
    url = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
    url += "?target_session_attrs=read-write"
    with (
        tampu.open(url, maintenance=False) as store,
        tampu.open(url, maintenance=False) as worker,
        ThreadPoolExecutor(2) as pool,
    ):
        store.publish("jobs", "before")
        waiting = pool.submit(worker.claim, "other", wait=240)
        until(lambda: waits(worker))
        with psycopg.connect(primary.url(), autocommit=True) as db:
            until(lambda: db.execute(CAUGHT_UP).fetchone() == (True,))
        primary.kill()
        publishing = pool.submit(store.publish, "jobs", "after")
        with psycopg.connect(standby.url(), autocommit=True) as db:
            assert db.execute("SELECT pg_promote()").fetchone() == (True,)
        assert publishing.result(240).payload == "after"
        assert payloads(store.claim("jobs", limit=5)) == ["before", "after"]
        store.publish("other", "woken")
        assert payloads(waiting.result(240)) == ["woken"]
