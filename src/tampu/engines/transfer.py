"""Moving messages between stores: whole messages as values, and the calls that import them.

`Engine.export_messages` and `Engine.export_idempotency_keys` export, `Import` imports. Which messages are moved, and
when, is policy: see `tampu.broker.transfer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tampu.engines.groups import ORDERED, GroupRate
from tampu.model.errors import InvalidMessage
from tampu.model.journal import Position
from tampu.model.message import Body, Failure, State
from tampu.model.states import TERMINAL


class MessageSnapshot(msgspec.Struct, frozen=True, gc=False):
    """A message with everything a store knows of it, except its lease, which cannot be moved."""

    id: str
    state: State
    body: Body
    rank: int
    attempts: int
    max_attempts: int
    created_us: int
    run_us: int | None = None
    expires_us: int | None = None
    ended_us: int | None = None
    reason: str | None = None
    group: str | None = None
    """The group, if the queue limits groups."""
    waits_turn: bool = False
    """Held until a slot of its group is free."""
    has_key: bool = False
    """Publishing with its key replaces its payload."""
    cancel_requested: bool = False
    failures: tuple[Failure, ...] = ()
    result: bytes | None = None
    result_until_us: int | None = None


class SnapshotPage(msgspec.Struct, frozen=True):
    items: list[MessageSnapshot]
    cursor: tuple[Any, ...] | None
    """Where the next page starts; None at the end."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """An idempotency key within its window, and its message."""

    key: str
    digest: bytes
    until_us: int
    id: str
    queue: str | None
    """None: the message was gone when the store was migrated from a schema that did not say the queue."""


class RequestPage(msgspec.Struct, frozen=True):
    items: list[Request]
    cursor: tuple[Any, ...] | None


class Import(msgspec.Struct, frozen=True):
    """Store messages as they are, in their order, all or none. Those whose ids the tenant has already are left out.

    Each goes to the end of its rank, or is held if its group has no free slot. Idempotency keys that are in use here
    stay as they are. Journaled as ``adopt``, with ``origin`` as detail. Leased messages are refused. Reply: int, how
    many were stored.
    """

    tenant: str
    queue: str
    items: Sequence[MessageSnapshot]
    origin: str
    requests: Sequence[Request] = ()
    slots: int | None = ORDERED
    """How many messages of a group may be delivered at once; see `tampu.engines.groups`."""
    group_rate: GroupRate | None = None
    """Deliveries per second of a group."""


class StartJournal(msgspec.Struct, frozen=True):
    """Let the journal continue after these offsets, in partitions that exist and are empty. So readers need not notice
    that the store was migrated. Reply: Position, of the partitions that were set."""

    after: Position


def check(call: Import) -> None:
    """Refuse messages that cannot be stored as they are."""
    for item in call.items:
        if item.state is State.LEASED:
            raise InvalidMessage("a leased message cannot be imported", field="items", hint="settle it first")
        if (item.ended_us is None) == (item.state in TERMINAL):
            raise InvalidMessage(f"ended_us does not fit the state {item.state}", field="items")
