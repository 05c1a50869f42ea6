"""What the reference model keeps: the rules of a queue, a message as it is drawn, a message as it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SECOND = 1_000_000


@dataclass(frozen=True)
class Rules:
    """The settings of a queue, in microseconds."""

    ordering: str = "fifo"
    ageing: int = 0
    group_order: bool = False
    group_concurrency: int = 0
    group_every: int = 0
    """A token of a group comes so often; 0: there are none."""
    group_burst: int = 0
    max_in_flight: int = 0
    max_depth: int = 0
    ttl: int = 0
    on_deadline: str = "keep"
    max_attempts: int = 3
    lease: int = 10 * SECOND
    delays: tuple[int, ...] = (2 * SECOND, 5 * SECOND)
    idempotency: int = 30 * SECOND
    result_ttl: int = 20 * SECOND
    retention: int = 60 * SECOND


@dataclass(frozen=True)
class New:
    """A message to publish, as the test draws it; times in microseconds."""

    payload: int = 0
    priority: int = 0
    delay: int | None = None
    ttl: int | None = None
    deadline: int | None = None
    key: str | None = None
    idempotency_key: str | None = None
    max_attempts: int | None = None
    group: str | None = None
    hold: str | None = None
    id: str | None = None

    def body(self) -> tuple[Any, ...]:
        """What an idempotency key stands for: all that was said, except when it is to run."""
        return (self.payload, self.priority, self.deadline, self.key, self.idempotency_key, self.group, self.hold)


@dataclass(eq=False)
class Entry:
    """One message and all that is known of it."""

    id: str
    tenant: str
    queue: str
    n: int
    """Publish order."""
    payload: int
    rank: float
    max_attempts: int
    expires: int | None
    key: str | None
    group: str | None
    dead_at: int | None = None
    """Past this it is dead, not expired."""
    own_attempts: bool = False
    """The publisher gave its max_attempts."""
    flow: str | None = None
    """The group whose turns it takes, in a fair queue."""
    turn: int | None = None
    """Where it is among the ready of a fair queue, as it was last seen; None: it has become ready since."""
    state: str = ""
    place: tuple[int, int] = (0, 0)
    """Among the ready of its rank: (when it came, order within that moment)."""
    attempts: int = 0
    run_at: int | None = None
    reason: str | None = None
    has_key: bool = False
    waits_since: int = 0
    """The moment when it last asked for its key."""
    has_turn: bool = False
    waits_turn: bool = False
    tied: tuple[int, str] | None = None
    """Who asked for a token of its group at the same moment."""
    receipt: str | None = None
    until: int = 0
    asked: bool = False
    settled: tuple[str, str] | None = None
    """The receipt and verb that brought it where it is."""
    at: int = 0
    """When it ended or died."""
    failures: int = 0
    result: Any = None
    result_until: int = 0
