"""Checks that the server's settings allow tampu's guarantees, on open and in `tampu doctor`."""

from __future__ import annotations

from typing import Any

import msgspec

from tampu.engines.redis.connection.node import Node, Patience
from tampu.engines.redis.connection.script_calls import Operation, ok
from tampu.engines.redis.connection.wire import Wire
from tampu.engines.redis.queue_registry import QueueRegistry
from tampu.model.errors import InvalidConfig, TampuError, Unavailable

Finding = tuple[str, str, str]
OLDEST = (6, 2)
_ORDER = ("none", "everysec", "full")


class Server(msgspec.Struct, frozen=True):
    """Version and settings of one server."""

    name: str
    version: tuple[int, ...]
    policy: str
    append_only: bool
    fsync: str | None
    """None if CONFIG GET is not allowed."""
    replicas: int
    memory: int
    most_memory: int

    @property
    def durability(self) -> str:
        """What survives a power loss: everything acknowledged, all but the last second, or no guarantee."""
        if not self.append_only:
            return "none"
        return {"always": "full", "everysec": "everysec"}.get(self.fsync or "everysec", "none")


def read_server(wire: Wire, node: Node) -> Server:
    info, patience = _info(wire, node), Patience()
    while info.get("loading") == "1":  # a loading server reports that the append-only file is off
        if not patience.wait():
            raise Unavailable(f"{wire.url} is still loading its data", hint="try again in a moment")
        info = _info(wire, node)
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version", "0")
    fsync: str | None = None
    try:
        answer: Any = wire.send_to(node, "CONFIG", "GET", "appendfsync")
        _, value = answer or (None, None)
        fsync = value.decode() if value else None
    except TampuError:
        fsync = None  # hosted servers often forbid CONFIG GET
    return Server(
        name=name,
        version=tuple(int(part) for part in version.split(".") if part.isdigit()),
        policy=info.get("maxmemory_policy", "unknown"),
        append_only=info.get("aof_enabled") == "1",
        fsync=fsync,
        replicas=int(info.get("connected_slaves", "0")),
        memory=int(info.get("used_memory", "0")),
        most_memory=int(info.get("maxmemory", "0")),
    )


def _info(wire: Wire, node: Node) -> dict[str, str]:
    lines = wire.send_to(node, "INFO").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def check_servers(servers: list[Server], wanted: str | None) -> str:
    """The durability of the weakest server. Refuses servers that may lose work or are weaker than ``wanted``."""
    for server in servers:
        if server.version[:2] < OLDEST:
            raise Unavailable(
                f"{server.name} {_dotted(server)} is too old", hint="tampu needs Redis 6.2 or Valkey 7.2, or newer"
            )
        if server.policy not in ("noeviction", "unknown"):
            raise InvalidConfig(
                f"the server may delete accepted messages: maxmemory-policy is {server.policy}",
                field="url",
                hint="set it on the server: CONFIG SET maxmemory-policy noeviction, and in its configuration file",
            )
    weakest = min((server.durability for server in servers), key=_ORDER.index)
    if wanted is not None and wanted not in _ORDER:
        raise InvalidConfig(
            f"no such durability: {wanted}",
            field="durability",
            hint="use full, everysec or none: the minimum the server must give",
        )
    if wanted is not None and _ORDER.index(weakest) < _ORDER.index(wanted):
        raise InvalidConfig(
            f"durability {wanted} was asked for, the server gives {weakest}",
            field="durability",
            hint="set on the server: appendonly yes, appendfsync always (or everysec)",
        )
    return weakest


def _dotted(server: Server) -> str:
    return ".".join(map(str, server.version))


def findings(servers: list[Server]) -> list[Finding]:
    found: list[Finding] = []
    first = servers[0]
    count = "" if len(servers) == 1 else f", a cluster of {len(servers)} masters"
    found.append(("server", "ok", f"{first.name} {_dotted(first)}{count}"))
    weakest = min(servers, key=lambda server: _ORDER.index(server.durability))
    found.append(_durability(weakest))
    evicting = [server.policy for server in servers if server.policy != "noeviction"]
    found.append(
        ("memory policy", "ok", "noeviction: nothing is evicted")
        if not evicting
        else ("memory policy", "bad", f"{evicting[0]}: CONFIG SET maxmemory-policy noeviction")
    )
    used = sum(server.memory for server in servers)
    most = sum(server.most_memory for server in servers)
    text = f"{used / 1e6:.0f} MB used" + (f" of {most / 1e6:.0f}" if most else ", no maxmemory set")
    found.append(("memory", "warn" if most and used > 0.8 * most else "ok", text))
    if any(server.replicas for server in servers):
        found.append(
            (
                "replicas",
                "warn",
                "replication is asynchronous: a failover may lose the last writes;"
                " min-replicas-to-write reduces the loss",
            )
        )
    return found


def _durability(server: Server) -> Finding:
    if server.durability == "full":
        return ("durability", "ok", "full: what is acknowledged survives power loss")
    if server.durability == "everysec":
        guess = "" if server.fsync else " (a guess: CONFIG GET appendfsync is not allowed)"
        return ("durability", "warn", f"everysec: the last second before a power loss may be lost{guess}")
    return (
        "durability",
        "warn",
        "none: acknowledged messages may be lost when the server crashes; set appendonly yes, appendfsync always",
    )


def check_indexes(registry: QueueRegistry, now: int) -> Operation[list[Finding]]:
    """Check that every message is in exactly one index and the clock is not behind the newest message."""
    entries = yield from registry.all()
    replies = (yield [registry.write.script("check_indexes", entry.tag) for entry in entries]) if entries else []
    wrong, total, last = [], 0, 0
    for entry, reply in zip(entries, replies, strict=True):
        messages, indexed, newest = ok(reply)
        total += messages
        last = max(last, newest)
        if messages != indexed:
            wrong.append(f"{entry.partition}: {messages} messages, {indexed} index entries")
    indexes: Finding = (
        ("indexes", "bad", f"do not agree: {'; '.join(wrong[:5])}; this is a bug in tampu; please report it")
        if wrong
        else ("indexes", "ok", f"{total} messages, each in one index")
    )
    ahead = last / 1000 - now / 1_000_000
    clock: Finding = (
        ("clock", "ok", "not behind the newest message")
        if ahead < 1
        else ("clock", "warn", f"{ahead:.0f} s behind the newest message: delays and leases last longer; set the clock")
    )
    return [indexes, clock]
