"""What one run of the engine brought about, for those who wait."""

from __future__ import annotations

from typing import Any

from tampu.engines.redis.queue_registry import QueueEntry, QueueRegistry
from tampu.engines.redis.script_calls import Writer, ok


class RunContext:
    def __init__(self, registry: QueueRegistry) -> None:
        self.registry = registry
        self.write: Writer = registry.write
        self.ready: dict[tuple[str, str], int] = {}
        self.leases_expired: dict[tuple[str, str], tuple[int, int]] = {}
        self.due: int | None = None

    def became_ready(self, queue: tuple[str, str], count: int) -> None:
        self.ready[queue] = self.ready.get(queue, 0) + count

    def heard(self, room: QueueEntry, reply: Any) -> list[Any]:
        """A script's reply begins with how many became ready and what is due first; the reply."""
        found: list[Any] = ok(reply)
        woken, due = found[0], found[1]
        if woken:
            self.became_ready((room.tenant, room.queue), woken)
        if due is not None and (self.due is None or due < self.due):
            self.due = due
        return found

    def swept(self, room: QueueEntry, told: list[Any]) -> int:
        """What a sweep moved; of it, leases that ran out are remembered."""
        moved, back, dead = told
        if back or dead:
            name = (room.tenant, room.queue)
            before = self.leases_expired.get(name, (0, 0))
            self.leases_expired[name] = (before[0] + back, before[1] + dead)
        return int(moved)
