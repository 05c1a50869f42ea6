"""A cluster: queues on all its servers, slots that move, a server that is away."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis.crc import key_slot

import tampu
from tampu.engines.port import Claim, Want
from tests.conformance.house import until
from tests.servers import redis
from tests.servers.redis import Trio, redis_binary

NAMES = [f"queue-{n}" for n in range(12)]


@pytest.fixture
def q() -> Iterator[tampu.Queue]:
    with tampu.open(redis.cluster.url(), keepers=False) as opened:
        yield opened


@pytest.fixture
def trio() -> Iterator[Trio]:
    made = Trio(redis_binary()).start()
    yield made
    made.remove()


def _servers(q: tampu.Queue) -> list[Any]:
    engine: Any = q._core.engine
    return [engine._wire.route.node(engine.house.tags.queue("default", name)) for name in NAMES]


def test_the_keys_of_a_queue_share_a_slot_and_queues_are_spread(q: tampu.Queue) -> None:
    for name in NAMES:
        q.publish(name, 1, key="k", ttl=60, idempotency_key=name, group="g")
    engine: Any = q._core.engine
    assert len({id(node) for node in _servers(q)}) == 3
    for node in engine._wire.route.masters():
        for key in engine._wire.one(node, "KEYS", f"*{engine.place.prefix}:default:*"):
            tag = key.decode().partition("}")[0] + "}"
            assert key_slot(key) == key_slot(tag.encode())


def test_one_claim_takes_from_queues_on_every_server(q: tampu.Queue) -> None:
    for name in NAMES:
        q.publish_many(name, [1, 2])
    leases = q.claim(NAMES, limit=20)
    assert [lease.queue for lease in leases] == [name for name in NAMES for _ in range(2)][:20]
    assert all(outcome.ok for outcome in q.settle([tampu.Ack(lease) for lease in leases]))
    assert len(q.claim([*reversed(NAMES), "none"], limit=20)) == 4


def test_cancel_and_stats_reach_every_server(q: tampu.Queue) -> None:
    ids = [q.publish(name, 1).id for name in NAMES]
    assert all(outcome.ok for outcome in q.cancel(*ids))
    assert [stats.cancelled for stats in q.stats()] == [1] * 12


def test_a_slot_that_moved_is_followed(trio: Trio) -> None:
    with tampu.open(trio.url(), keepers=False) as q:
        q.publish("before", 0)
        slot = key_slot(b"{tampu:default:moving}")
        source = next(s for s in trio.servers if _has(s, slot))
        target = next(s for s in trio.servers if s is not source)
        node = target.client().execute_command("CLUSTER MYID")
        for server in trio.servers:
            server.client().execute_command("CLUSTER SETSLOT", slot, "NODE", node)
        q.publish("moving", 1)
        assert target.client().execute_command("CLUSTER COUNTKEYSINSLOT", slot) > 0
        assert len(q.claim("moving")) == 1


def test_a_slot_that_is_being_moved_is_asked_where_it_goes(trio: Trio) -> None:
    with tampu.open(trio.url(), keepers=False) as q:
        q.publish("before", 0)
        slot = key_slot(b"{tampu:default:moving}")
        source = next(s for s in trio.servers if _has(s, slot))
        target = next(s for s in trio.servers if s is not source)
        names = [s.client().execute_command("CLUSTER MYID") for s in (source, target)]
        target.client().execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[0])
        source.client().execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[1])
        q.publish("moving", 1)
        assert target.client().execute_command("CLUSTER COUNTKEYSINSLOT", slot) > 0
        assert len(q.claim("moving")) == 1


def _has(server: Any, slot: int) -> bool:
    mine = server.client().execute_command("CLUSTER MYID")
    mine = mine.decode() if isinstance(mine, bytes) else mine
    lines = server.client().execute_command("CLUSTER NODES")
    return any(
        info["node_id"] == mine and any(int(first) <= slot <= int(last) for first, last in _ranges(info))
        for info in lines.values()
    )


def _ranges(info: dict[str, Any]) -> list[tuple[str, str]]:
    return [(span[0], span[-1]) for span in info["slots"]]


def test_a_server_that_is_away_does_not_stop_the_queues_of_the_others(trio: Trio) -> None:
    for server in trio.servers:
        server.client().config_set("cluster-require-full-coverage", "no")
    with tampu.open(trio.url(), keepers=False) as q:
        for name in NAMES:
            q.publish(name, 1)
        house: Any = q._core.engine
        slots = {name: key_slot(f"{{tampu:default:{name}}}".encode()) for name in NAMES}
        home = next(s for s in trio.servers if _has(s, key_slot(b"{tampu}")))
        away = next(s for s in trio.servers if s is not home)
        gone = [name for name in NAMES if _has(away, slots[name])]
        here = [name for name in NAMES if name not in gone]
        away.kill()
        assert gone
        assert here
        (one, other) = house.run(
            [
                Claim("default", [Want(here[0], 10**7)], 1),
                Claim("default", [Want(gone[0], 10**7)], 1),
            ]
        )
        assert len(one) == 1
        assert isinstance(other, tampu.Unavailable)
        assert house.next_due() is not None
        away.start()
        until(lambda: _publishes(q, gone[0]), 30)


def _publishes(q: tampu.Queue, name: str) -> bool:
    try:
        q.publish(name, 2)
    except tampu.Unavailable:
        return False
    return True
