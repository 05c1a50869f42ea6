"""Flows: messages that wait for each other, as they are published and as users see them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from tampu.model.message import NewMessage

OnFailure = Literal["fail", "skip", "run"]
FlowStatus = Literal["running", "done", "failed", "cancelled"]
HOLD = "parents"
"""Why a member is held that waits for others."""
HOLD_FOR_RESULTS = "results of parents"
"""The same, for a member whose payload gets their results."""


class FlowMember(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a flow."""

    queue: str
    message: NewMessage
    after: Sequence[Any] = ()
    """What it waits for: indexes of earlier members of the same call, runs ``(first index, how many)`` of them, and ids
    of members that the flow has already."""
    on_failure: OnFailure = "fail"
    """What happens if a parent fails: ``fail`` waits until the parent is replayed, ``skip`` cancels this member,
    ``run`` runs it with None for the missing result."""
    into: str | None = None
    """The field of the payload that gets the results of the parents. ``""`` replaces the whole payload; None does
    nothing."""
    many: bool | None = None
    """True: the results are a list, however many there are. None: a list if there are several parents."""


class FlowMemberView(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a flow as it was when it was read."""

    id: str
    queue: str
    type: str
    state: str
    """A state of messages, or ``skipped``, ``blocked`` or ``removed``."""
    parents: int = 0
    """How many members it waits for, or has waited for."""
    after: tuple[str, ...] = ()
    """The first of them, at most twenty."""
    on_failure: OnFailure = "fail"
    error: str | None = None
    """The last error of a member that is not done."""


class FlowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as it was when it was read."""

    id: str
    name: str
    status: FlowStatus
    created_at: datetime
    by: str
    correlation_id: str
    """Of all its members: `Store.trace` takes it."""
    total: int
    counts: dict[str, int]
    """Members by state. ``open`` are those that wait or run."""
    ended_at: datetime | None = None
    members: tuple[FlowMemberView, ...] = ()
    """In the order in which they were added; only `get` fills it, up to its limit."""


class FlowPage(msgspec.Struct, frozen=True):
    """A page of flows, the newest first. Pass ``cursor`` as ``after`` for the next one; None: there is none."""

    flows: list[FlowRecord]
    cursor: str | None = None
