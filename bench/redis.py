"""Redis and Valkey: one client publishes, claims and acks batches; claims from a long backlog.

The ceiling is the least a loop with the same driver and durability can do: three scripts that write the payloads into
a hash and a sorted set, move the first to a sorted set of leases, and delete them when they are acked; no journal, no
receipts, no ended messages.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tampu
from bench.measure import PAYLOAD, Row, in_turns, rate, rates, ratio_row
from tests.servers.redis import DURABLE, Server, redis_binary, valkey_binary

WARM_UP = 20
BULK = 10_000
_PUBLISH = """
local last, m, z = redis.call('INCRBY', KEYS[3], #ARGV), {}, {}
for i = 1, #ARGV do
  local id = tostring(last - #ARGV + i)
  m[2 * i - 1], m[2 * i], z[2 * i - 1], z[2 * i] = id, ARGV[i], id, id
end
redis.call('HSET', KEYS[1], unpack(m))
redis.call('ZADD', KEYS[2], unpack(z))
"""
_CLAIM = """
local popped, ids, z = redis.call('ZPOPMIN', KEYS[2], ARGV[1]), {}, {}
for i = 1, #popped, 2 do
  ids[#ids + 1], z[#z + 1], z[#z + 2] = popped[i], ARGV[2], popped[i]
end
redis.call('ZADD', KEYS[3], unpack(z))
return { ids, redis.call('HMGET', KEYS[1], unpack(ids)) }
"""
_ACK = "redis.call('ZREM', KEYS[2], unpack(ARGV)) redis.call('HDEL', KEYS[1], unpack(ARGV))"


def ceiling(_: Path, server: Server, count: int, batch: int) -> float:
    with server.client() as client:
        client.flushall()
        publish, claim, ack = (client.register_script(text) for text in (_PUBLISH, _CLAIM, _ACK))

        def work(count: int = count) -> None:
            for _ in range(0, count, batch):
                publish(keys=["m", "ready", "n"], args=[PAYLOAD] * batch)
                ids, _payloads = claim(keys=["m", "ready", "leased"], args=[batch, int(time.time()) + 30])
                ack(keys=["m", "leased"], args=ids)

        work(WARM_UP * batch)
        return rate(count, work)


def ours(_: Path, server: Server, count: int, batch: int) -> float:
    with server.client() as client:
        client.flushall()
    with tampu.open(server.url()) as store:

        def work(count: int = count) -> None:
            for _ in range(0, count, batch):
                store.publish_many("bench", [PAYLOAD] * batch)
                leases = store.claim("bench", limit=batch)
                store.settle([tampu.Ack(lease) for lease in leases])

        work(WARM_UP * batch)
        return rate(count, work)


def end_to_end(name: str, server: Server, quick: bool) -> list[Row]:
    count, rounds = (3_000, 3) if quick else (20_000, 7)
    rows: list[Row] = []
    for batch, part, target in ((100, 1, "≥ 0.50"), (1, 20, ""), (1000, 1, "")):
        sides: dict[str, Callable[[Path], float]] = {
            f"tampu on {name}, batch {batch}": partial(ours, server=server, count=count // part, batch=batch),
            f"ceiling, {name}, batch {batch}": partial(ceiling, server=server, count=count // part, batch=batch),
        }
        found = in_turns(sides, rounds if batch == 100 else 3)
        first, second = sides
        rows += [*rates(found), ratio_row(found, first, second, target)]
    return rows


def growth(server: Server, quick: bool) -> list[Row]:
    """Claims of 100 with a long backlog, in turns with claims from an empty queue."""
    backlog, rounds = (50_000, 60) if quick else (1_000_000, 300)
    with server.client() as client:
        client.flushall()
        with tampu.open(server.url()) as store:
            for _ in range(0, backlog, BULK):
                store.publish_many("full", [PAYLOAD] * BULK)
            for _ in range(0, backlog, BULK):
                store.publish_many("full", [tampu.NewMessage(PAYLOAD, delay=86_400)] * BULK)
            used = client.info("memory")["used_memory"]
            while client.info("persistence")["aof_rewrite_in_progress"]:
                time.sleep(0.2)  # a server that copies its memory is slower wherever it is touched
            times: dict[str, list[float]] = {"full": [], "empty": []}
            for turn in range(rounds):
                for queue in ("full", "empty") if turn % 2 else ("empty", "full"):
                    times[queue].append(_claim_seconds(store, queue))
        client.flushall()
    middle = {queue: statistics.median(seconds) for queue, seconds in times.items()}
    return [
        Row(f"claim with {backlog:,} ready and as many delayed / empty", middle["full"] / middle["empty"], "ratio",
            "≤ 1.10"),
        Row("memory", used / 2 / backlog, "bytes/message"),
    ]  # fmt: skip


def _claim_seconds(store: tampu.Store, queue: str) -> float:
    store.publish_many(queue, [PAYLOAD] * 100)
    began = time.perf_counter()
    leases = store.claim(queue, limit=100)
    took = time.perf_counter() - began
    store.settle([tampu.Ack(lease) for lease in leases])
    return took


def run(quick: bool) -> list[Row]:
    rows: list[Row] = []
    binaries: dict[str, Any] = {"Redis": redis_binary, "Valkey": valkey_binary}
    for name, binary in binaries.items():
        for fsync in ("always", "everysec"):
            server = Server(binary(), {**DURABLE, "appendfsync": fsync}).start()
            try:
                rows += end_to_end(f"{name}, {fsync}", server, quick)
                if fsync == "everysec":
                    rows += growth(server, quick)
            finally:
                server.remove()
    return rows
