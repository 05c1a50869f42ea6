"""What a migration found and did, and the counts of both stores at the end."""

from __future__ import annotations

import msgspec

from tampu.engines.port import Engine
from tampu.model.errors import StorageError
from tampu.model.message import State


class QueueCount(msgspec.Struct):
    """The messages of one queue by state, in both stores."""

    tenant: str
    queue: str
    source: dict[State, int] = {}
    target: dict[State, int] | None = None
    """None: nothing was copied yet."""

    @property
    def name(self) -> str:
        return f"{self.tenant}/{self.queue}"


class Report(msgspec.Struct):
    queues: list[QueueCount] = []
    stored: int = 0
    """Messages that this run has stored; others were there before."""
    documents: int = 0
    requests: int = 0
    """Idempotency keys."""
    readers: list[str] = []
    """Readers of the journal that continue at the target."""
    notes: list[str] = []
    """What users should know."""
    dry_run: bool = False
    was_done: bool = False
    """It was migrated before; nothing was done."""

    @property
    def total(self) -> int:
        return sum(sum(queue.source.values()) for queue in self.queues)


def count(report: Report, target: Engine) -> None:
    """Count the target."""
    for queue in report.queues:
        found = target.stats(queue.tenant, queue.queue)
        queue.target = {state: n for state, n in (found[0].counts if found else {}).items() if n}


def compare(report: Report, had: dict[str, int], *, strict: bool) -> None:
    """Compare the counts of the target with those of the source.

    If messages are missing it raises, or without ``strict``, when others may use the target, adds a note.
    """
    for queue in report.queues:
        arrived = sum((queue.target or {}).values()) - had.get(queue.name, 0)
        wanted = sum(queue.source.values())
        if arrived < wanted:
            text = f"{wanted} messages of {queue.name} are in the source, and {arrived} in the target"
            if strict:
                raise StorageError(
                    text, hint="stop what removes messages from the target, and copy again: the source is complete"
                )
            report.notes.append(text)
        elif arrived > wanted:
            report.notes.append(f"{queue.name}: {arrived - wanted} copied messages have ended in the source since")
