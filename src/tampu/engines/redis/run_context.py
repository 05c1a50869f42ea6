"""What one run of the engine changed, to tell the listener afterwards."""

from __future__ import annotations

from typing import Any

from tampu.engines.redis.connection.script_calls import Writer, ok
from tampu.engines.redis.queue_registry import QueueEntry, QueueRegistry


class RunContext:
    def __init__(self, registry: QueueRegistry) -> None:
        self.registry = registry
        self.write: Writer = registry.write
        self.ready: dict[tuple[str, str], int] = {}
        self.leases_expired: dict[tuple[str, str], tuple[int, int]] = {}
        self.due: int | None = None

    def became_ready(self, queue: tuple[str, str], count: int) -> None:
        self.ready[queue] = self.ready.get(queue, 0) + count

    def read_reply(self, entry: QueueEntry, reply: Any) -> list[Any]:
        """Record how many messages became ready and when the next work is due. Returns the rest of the reply."""
        rest: list[Any]
        newly_ready, due, *rest = ok(reply)
        if newly_ready:
            self.became_ready((entry.tenant, entry.queue), newly_ready)
        if due is not None and (self.due is None or due < self.due):
            self.due = due
        return rest

    def swept(self, entry: QueueEntry, counts: list[Any]) -> int:
        """Record the leases that expired in a sweep. Returns how many messages it moved."""
        moved, back, dead = counts
        if back or dead:
            name = (entry.tenant, entry.queue)
            back_before, dead_before = self.leases_expired.get(name, (0, 0))
            self.leases_expired[name] = (back_before + back, dead_before + dead)
        return int(moved)
