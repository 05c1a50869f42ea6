"""Connections that break, workers that wait, processes that lead: nobody stays silent."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.engines.redis import RedisEngine
from tests.conformance.harness import payloads, until, waits
from tests.servers.redis import DURABLE, Server

Start = Callable[..., Server]


def test_an_idle_connection_that_the_server_closed_is_replaced(start: Start) -> None:
    server = start()
    with tampu.open(server.url(), maintenance=False) as store:
        for n in range(5):
            store.publish("jobs", n)
            server.client().client_kill_filter(_type="normal", skipme=True)
            until(lambda: _closed(store))
        assert payloads(store.claim("jobs", limit=10)) == list(range(5))


def _closed(store: tampu.Store) -> bool:
    """Has it reached us that the connections are closed?"""
    engine: Any = access.engine(store)
    return all(watch.poll(0) for _, watch in engine.wire.route.only._idle)


def test_a_waiting_worker_hears_again_after_its_connection_was_lost(start: Start) -> None:
    server = start()
    with (
        tampu.open(server.url()) as store,
        tampu.open(server.url(), maintenance=False) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(store.claim, "jobs", wait=240)
        until(lambda: waits(store))
        server.client().client_kill_filter(_type="pubsub", skipme=True)
        other.publish("jobs", "hello")
        assert payloads(waiting.result(timeout=60)) == ["hello"]


def test_a_waiting_worker_works_on_after_the_server_was_restarted(start: Start) -> None:
    server = start({"appendonly": "yes", "appendfsync": "always"})
    with tampu.open(server.url()) as store, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_claim_steadily, store, 5)
        until(lambda: waits(store))
        store.publish("jobs", "before", delay=0.5)
        server.kill()
        server.start()
        assert payloads(waiting.result(timeout=60)) == ["before"]


def _claim_steadily(store: tampu.Store, wait: float) -> list[tampu.Lease]:
    """Also when the server needs longer to come back than a call has patience."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        try:
            leases = store.claim("jobs", wait=wait)
        except tampu.Unavailable:
            continue
        if leases:
            return leases
    return []


def test_a_call_that_may_have_happened_says_so(start: Start) -> None:
    server = start()
    with tampu.open(server.url(), maintenance=False) as store:
        store.publish("jobs", 1)
        for connection, _ in access.engine(store).wire.route.only._idle:  # type: ignore[attr-defined]  # a RedisEngine
            connection._sock.settimeout(0.3)  # only of what is asked while the server sleeps
        call = access.verbs(store).publishing("jobs", [2])  # has read the settings, which would not say so
        os.kill(server.pid, signal.SIGSTOP)
        with pytest.raises(tampu.Unavailable, match="may or may not have happened"):
            access.core(store).do(call)
        os.kill(server.pid, signal.SIGCONT)
        assert store.stats("jobs").ready in (1, 2)


def test_one_of_two_leads_and_the_other_takes_over_when_it_ends(url: str) -> None:
    one, two = RedisEngine(url), RedisEngine(url)
    assert (one.lead(), two.lead(), one.lead()) == (True, False, True)
    assert (one.poll_status([]).free, two.poll_status([]).free) == (True, False)
    one.close()
    assert two.poll_status([]).free
    assert two.lead()
    two.close()


def test_who_was_stopped_does_not_renew_the_lead_of_another(url: str) -> None:
    one, two = RedisEngine(url), RedisEngine(url)
    assert one.lead()
    tag = one.registry.tags.registry
    one.wire.send([one.registry.write.plain("DEL", tag, "lead")])
    one.peers._renew_at = 0.0  # its time is over
    assert two.lead()
    assert not one.lead()
    one.close()
    assert two.lead(), "closing gives up only a lead of one's own"
    two.close()


def test_settings_changed_elsewhere_arrive_also_after_connections_were_lost(start: Start) -> None:
    server = start()
    with tampu.open(server.url(), maintenance=False) as one, tampu.open(server.url(), maintenance=False) as two:
        assert two.publish("jobs", 1).max_attempts == 5
        for attempts in (2, 3, 4):
            for kind in ("pubsub", "normal"):
                server.client().client_kill_filter(_type=kind, skipme=True)
            one.queues.put("jobs", max_attempts=attempts)
            until(lambda wanted=attempts: two.publish("jobs", 1).max_attempts == wanted)  # type: ignore[misc]  # bound now


def test_settings_changed_while_the_server_was_restarted_arrive(start: Start) -> None:
    server = start(DURABLE)
    with ThreadPoolExecutor(1) as pool, tampu.open(server.url()) as waiter, tampu.open(server.url()) as other:
        other.queues.put("jobs", status="paused")
        other.publish("jobs", "hello")
        waiting = pool.submit(_claim_steadily, waiter, 240)
        until(lambda: waits(waiter))
        server.kill()
        server.start()
        other.queues.put("jobs", status="open")
        assert payloads(waiting.result(60)) == ["hello"]
        other.queues.put("jobs", max_depth=1)
        until(lambda: _refuses(waiter), 25)  # sooner than a silent connection is asked after


def _refuses(store: tampu.Store) -> bool:
    try:
        store.publish("jobs", 2)
    except tampu.QueueFull:
        return True
    return False


def test_a_store_whose_data_was_lost_begins_anew(start: Start) -> None:
    """Without an append-only file: what this process remembers of queues must not outlive the server's memory."""
    server = start()
    with tampu.open(server.url(), maintenance=False) as store:
        store.publish("jobs", 1)
        server.kill()
        server.start()
        store.publish("jobs", 2)
        assert store.queues.list() == ["jobs"]
        assert payloads(store.claim("jobs", limit=5)) == [2]
        server.client().flushall()
        store.publish("jobs", 3)
        assert store.queues.list() == ["jobs"]
