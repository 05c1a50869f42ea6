"""Agents, as users see them: the maintenance tasks of a store, and the followers of its journal."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as it was when it was read."""

    name: str
    """Such as ``expiry``; a follower has the name ``follower:NAME``."""
    kind: Literal["task", "follower"]
    role: str
    """What it does, in words."""
    schedule: str
    """When it runs, in words."""
    status: Literal["active", "paused", "waiting", "parked"]
    """``waiting``: a follower that tries again after an error; ``parked``: one that does not, until it is resumed."""
    leader: str | None = None
    """The process that ran it last, as host:pid; None: not known."""
    last_run_at: datetime | None = None
    """When it last did something, or was last run on request."""
    done: int = 0
    """How much it has done: messages moved or removed, ticks, transitions."""
    lag: int | None = None
    """Transitions that a follower has not seen."""
    late: float | None = None
    """How many seconds the oldest work of the agent is overdue; None: not measured."""
    error: str | None = None
    """Why its last run failed."""
    error_at: datetime | None = None
    asked_at: datetime | None = None
    """When a run was last asked for."""
