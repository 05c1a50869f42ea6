"""Settings that another process changes arrive, also when the connections were lost meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import tampu
from tests.conformance.harness import payloads, until, waits
from tests.servers import mariadb, postgres

Databases = mariadb.Databases | postgres.Databases


def test_settings_changed_elsewhere_arrive_also_after_sessions_were_ended(databases: Databases, url: str) -> None:
    with tampu.open(url, maintenance=False) as store, tampu.open(url, maintenance=False) as other:
        assert store.publish("jobs", 1).max_attempts == 5
        for attempts in (2, 3, 4):
            databases.end_sessions()
            other.queues.put("jobs", max_attempts=attempts)
            until(lambda wanted=attempts: store.publish("jobs", 1).max_attempts == wanted)  # type: ignore[misc]  # bound now


def test_settings_reach_a_waiting_worker_whose_sessions_were_ended(databases: Databases, url: str) -> None:
    with ThreadPoolExecutor(1) as pool, tampu.open(url) as waiter, tampu.open(url, maintenance=False) as other:
        other.queues.put("jobs", status="paused")
        other.publish("jobs", "hello")
        waiting = pool.submit(waiter.claim, "jobs", wait=240)
        until(lambda: waits(waiter))
        databases.end_sessions()
        other.queues.put("jobs", status="open")
        assert payloads(waiting.result(60)) == ["hello"]
        databases.end_sessions()
        other.queues.put("jobs", max_attempts=2)
        until(lambda: waiter.publish("jobs", 1).max_attempts == 2)
