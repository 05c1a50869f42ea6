"""A cluster: queues on all its servers, slots that move, a server that is away."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from redis.crc import key_slot

import tampu
from tampu.broker import access
from tampu.engines.port import Claim, QueueClaim
from tampu.engines.redis import checks
from tests.conformance.harness import payloads, until, waits
from tests.engines.redis.reshard import owns
from tests.servers import redis
from tests.servers.redis import Server, Trio, redis_binary

NAMES = [f"queue-{n}" for n in range(12)]


@pytest.fixture
def store() -> Iterator[tampu.Store]:
    with tampu.open(redis.cluster.url(), maintenance=False) as opened:
        yield opened


@pytest.fixture
def trio() -> Iterator[Trio]:
    made = Trio(redis_binary()).start()
    yield made
    made.remove()


def test_a_cluster_without_sharded_channels_is_rung_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """They came with version 7. A waiting claim hears of what another process publishes by the older command."""
    look = checks.read_server
    monkeypatch.setattr(checks, "read_server", lambda *given: msgspec.structs.replace(look(*given), version=(6, 2, 0)))
    url = redis.cluster.url()
    with ThreadPoolExecutor(1) as pool, tampu.open(url) as waiter, tampu.open(url, maintenance=False) as other:
        engine: Any = access.engine(other)
        assert engine.peers.wake_others.command[0] == "PUBLISH"
        waiting = pool.submit(waiter.claim, "jobs", wait=240)
        until(lambda: waits(waiter))
        other.publish("jobs", "hello")
        assert payloads(waiting.result(60)) == ["hello"]


def _servers(store: tampu.Store) -> list[Any]:
    engine: Any = access.engine(store)
    return [engine.wire.route.node(engine.registry.tags.queue("default", name)) for name in NAMES]


def test_the_keys_of_a_queue_share_a_slot_and_queues_are_spread(store: tampu.Store) -> None:
    for name in NAMES:
        store.publish(name, 1, key="k", ttl=60, idempotency_key=name, group="g")
    engine: Any = access.engine(store)
    assert len({id(node) for node in _servers(store)}) == 3
    for node in engine.wire.route.masters():
        for key in engine.wire.send_to(node, "KEYS", f"*{engine.url.prefix}:default:*"):
            tag = key.decode().partition("}")[0] + "}"
            assert key_slot(key) == key_slot(tag.encode())


def test_one_claim_takes_from_queues_on_every_server(store: tampu.Store) -> None:
    for name in NAMES:
        store.publish_many(name, [1, 2])
    leases = store.claim(NAMES, limit=20)
    assert [lease.queue for lease in leases] == [name for name in NAMES for _ in range(2)][:20]
    assert all(outcome.ok for outcome in store.settle([tampu.Ack(lease) for lease in leases]))
    assert len(store.claim([*reversed(NAMES), "none"], limit=20)) == 4


def test_cancel_and_stats_reach_every_server(store: tampu.Store) -> None:
    ids = [store.publish(name, 1).id for name in NAMES]
    assert all(outcome.ok for outcome in store.cancel(*ids))
    assert [stats.cancelled for stats in store.stats()] == [1] * 12


def test_maintenance_works_on_every_server(store: tampu.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody claims: what is due moves by itself, whichever server has the queue."""
    monkeypatch.setattr("tampu.maintenance.tasks._REST_SECONDS", 0.1)
    monkeypatch.setattr("tampu.maintenance.tasks._IDLE_SECONDS", 0.1)
    for name in NAMES:
        store.queues.put(name, retention=0.001)
        store.publish(name, "leased")
        store.publish(name, "done")
        _, done = store.claim(name, limit=2, lease=0.05)
        store.ack(done)
        store.publish(name, "delayed", delay=0.05)
        store.publish(name, "short", ttl=0.05, hold="x")
    assert len({id(node) for node in _servers(store)}) == 3
    engine: Any = access.engine(store)
    with tampu.open(redis.cluster.server.url(prefix=engine.url.prefix)):
        until(lambda: [(s.ready, s.leased, s.delayed, s.held) for s in store.stats()] == [(2, 0, 0, 0)] * 12)
        until(lambda: [(s.done, s.expired) for s in store.stats()] == [(0, 0)] * 12)  # and what has ended is trimmed


def test_a_cluster_is_what_its_weakest_server_is(trio: Trio) -> None:
    for server in trio.servers[:2]:
        server.client().config_set("appendonly", "yes")
        server.client().config_set("appendfsync", "always")
    weak = trio.servers[2]
    with tampu.open(trio.url(), maintenance=False) as store:
        assert store.durability == "none"
    weak.client().config_set("appendonly", "yes")
    weak.client().config_set("appendfsync", "everysec")
    with tampu.open(trio.url(), maintenance=False) as store:
        assert store.durability == "everysec"
    with pytest.raises(tampu.InvalidConfig, match="everysec"):
        tampu.open(trio.url(), durability="full")
    weak.client().config_set("maxmemory-policy", "volatile-lru")
    with pytest.raises(tampu.InvalidConfig, match="volatile-lru"):
        tampu.open(trio.url())
    weak.client().config_set("maxmemory-policy", "noeviction")
    weak.client().config_set("appendfsync", "always")
    tampu.open(trio.url(), durability="full", maintenance=False).close()


def test_a_server_that_is_not_in_the_cluster_any_more_is_passed_over(trio: Trio, start: Callable[..., Server]) -> None:
    outside = start({"cluster-enabled": "yes"})
    url = trio.url().replace("127.0.0.1", f"127.0.0.1:{outside.port},127.0.0.1")
    with tampu.open(url, maintenance=False) as store:
        store.publish("jobs", 1)
        assert payloads(store.claim("jobs")) == [1]


def test_a_server_that_is_away_does_not_stop_the_queues_of_the_others(trio: Trio) -> None:
    for server in trio.servers:
        server.client().config_set("cluster-require-full-coverage", "no")
    with tampu.open(trio.url(), maintenance=False) as store:
        for name in NAMES:
            store.publish(name, 1)
        harness: Any = access.engine(store)
        slots = {name: key_slot(f"{{tampu:default:{name}}}".encode()) for name in NAMES}
        home = next(s for s in trio.servers if owns(s, key_slot(b"{tampu}")))
        away = next(s for s in trio.servers if s is not home)
        gone = [name for name in NAMES if owns(away, slots[name])]
        here = [name for name in NAMES if name not in gone]
        away.kill()
        assert gone
        assert here
        (one, other) = harness.run(
            [
                Claim("default", [QueueClaim(here[0], 10**7)], 1),
                Claim("default", [QueueClaim(gone[0], 10**7)], 1),
            ]
        )
        assert len(one) == 1
        assert isinstance(other, tampu.Unavailable)
        assert harness.next_due() is not None
        away.start()
        until(lambda: _publishes(store, gone[0]))


def _publishes(store: tampu.Store, name: str) -> bool:
    try:
        store.publish(name, 2)
    except tampu.Unavailable:
        return False
    return True
