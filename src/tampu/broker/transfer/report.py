"""What a move found, did, and counted at the end."""

from __future__ import annotations

import msgspec

from tampu.engines.port import Engine
from tampu.model.errors import StorageError
from tampu.model.message import State


class QueueCount(msgspec.Struct):
    """One queue, counted on both sides, by state."""

    tenant: str
    queue: str
    source: dict[State, int] = {}
    target: dict[State, int] | None = None
    """None: nothing was moved yet."""

    @property
    def name(self) -> str:
        return f"{self.tenant}/{self.queue}"


class Report(msgspec.Struct):
    queues: list[QueueCount] = []
    stored: int = 0
    """Messages that this run has stored; the others were there."""
    documents: int = 0
    requests: int = 0
    """Idempotency keys."""
    readers: list[str] = []
    """Readers of the journal that go on at the target."""
    notes: list[str] = []
    """What people should know."""
    dry_run: bool = False
    was_done: bool = False
    """It had been moved before; nothing was done."""

    @property
    def total(self) -> int:
        return sum(sum(queue.source.values()) for queue in self.queues)


def count(report: Report, target: Engine) -> None:
    """Count the target."""
    for queue in report.queues:
        found = target.stats(queue.tenant, queue.queue)
        queue.target = {state: n for state, n in (found[0].counts if found else {}).items() if n}


def compare(report: Report, had: dict[str, int], *, strict: bool) -> None:
    """Hold what was counted in the target against what the last look at the source found.

    Refuses when messages are missing; where others work meanwhile, and not ``strict``, it only says so.
    """
    for queue in report.queues:
        came = sum((queue.target or {}).values()) - had.get(queue.name, 0)
        wanted = sum(queue.source.values())
        if came < wanted:
            text = f"{wanted} messages of {queue.name} are in the source, and {came} in the target"
            if strict:
                raise StorageError(
                    text, hint="who removes messages from the target? Copy again when it is quiet: the source is whole"
                )
            report.notes.append(text)
        elif came > wanted:
            report.notes.append(f"{queue.name}: {came - wanted} messages that came have ended in the source since")
