"""What the server must be for the promises to hold, looked at when it is opened and by `tampu doctor`."""

from __future__ import annotations

from typing import Any

import msgspec

from tampu.engines.redis.node import Node, Patience
from tampu.engines.redis.queue_registry import QueueRegistry
from tampu.engines.redis.script_calls import Asking, ok
from tampu.engines.redis.wire import Wire
from tampu.model.errors import InvalidConfig, TampuError, Unavailable

Finding = tuple[str, str, str]
OLDEST = (6, 2)
_ORDER = ("none", "everysec", "full")


class Server(msgspec.Struct, frozen=True):
    """One server as it says it is."""

    name: str
    version: tuple[int, ...]
    policy: str
    append_only: bool
    fsync: str | None
    """None when we may not ask."""
    replicas: int
    memory: int
    most_memory: int

    @property
    def durability(self) -> str:
        """What a loss of power leaves: all that was acknowledged, all but a second, or who knows."""
        if not self.append_only:
            return "none"
        return {"always": "full", "everysec": "everysec"}.get(self.fsync or "everysec", "none")


def look(wire: Wire, node: Node) -> Server:
    told, patience = _info(wire, node), Patience()
    while told.get("loading") == "1":  # meanwhile it says that it writes no log
        if not patience.wait():
            raise Unavailable(f"{wire.place} is still loading its data", hint="try again in a moment")
        told = _info(wire, node)
    name = "Valkey" if "valkey_version" in told else "Redis"
    version = told.get("valkey_version") or told.get("redis_version", "0")
    fsync: str | None = None
    try:
        answer: Any = wire.one(node, "CONFIG", "GET", "appendfsync")
        fsync = answer[1].decode() if answer else None
    except TampuError:
        fsync = None  # hosted servers often do not let us ask
    return Server(
        name=name,
        version=tuple(int(part) for part in version.split(".") if part.isdigit()),
        policy=told.get("maxmemory_policy", "unknown"),
        append_only=told.get("aof_enabled") == "1",
        fsync=fsync,
        replicas=int(told.get("connected_slaves", "0")),
        memory=int(told.get("used_memory", "0")),
        most_memory=int(told.get("maxmemory", "0")),
    )


def _info(wire: Wire, node: Node) -> dict[str, str]:
    lines = wire.one(node, "INFO").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def admit(servers: list[Server], wanted: str | None) -> str:
    """The durability of the weakest; refuses servers that may lose work, or are weaker than what was asked for."""
    for server in servers:
        if server.version[:2] < OLDEST:
            raise Unavailable(
                f"{server.name} {_dotted(server)} is too old", hint="tampu needs Redis 6.2 or Valkey 7.2, or newer"
            )
        if server.policy not in ("noeviction", "unknown"):
            raise InvalidConfig(
                f"the server may throw accepted work away: maxmemory-policy is {server.policy}",
                field="url",
                hint="set it on the server: CONFIG SET maxmemory-policy noeviction, and in its configuration file",
            )
    weakest = min((server.durability for server in servers), key=_ORDER.index)
    if wanted is not None and wanted not in _ORDER:
        raise InvalidConfig(
            f"no such durability: {wanted}",
            field="durability",
            hint="full, everysec or none: the least the server gives",
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
        ("memory policy", "ok", "noeviction: nothing is thrown away")
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
                "replication is asynchronous: a failover may lose the last moments;"
                " min-replicas-to-write makes that shorter",
            )
        )
    return found


def _durability(server: Server) -> Finding:
    if server.durability == "full":
        return ("durability", "ok", "full: what is acknowledged survives loss of power")
    if server.durability == "everysec":
        asked = "" if server.fsync else " (we may not ask for appendfsync, so this is a guess)"
        return ("durability", "warn", f"everysec: the last second before a loss of power may be lost{asked}")
    return (
        "durability",
        "warn",
        "none: what was acknowledged may be gone after a crash of the server; set appendonly yes, appendfsync always",
    )


def agreement(registry: QueueRegistry, now: int) -> Asking[list[Finding]]:
    """Every message in exactly one index, and the clock not behind the newest message."""
    rooms = yield from registry.all()
    replies = (yield [registry.write.script("check_indexes", room.tag) for room in rooms]) if rooms else []
    wrong, total, last = [], 0, 0
    for room, reply in zip(rooms, replies, strict=True):
        messages, places, newest = ok(reply)
        total += messages
        last = max(last, newest)
        if messages != places:
            wrong.append(f"{room.partition}: {messages} messages in {places} places")
    indexes: Finding = (
        ("indexes", "bad", f"do not agree: {'; '.join(wrong[:5])}; this is a fault of tampu's, report it")
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
