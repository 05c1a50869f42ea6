"""What one store gives of itself to another: messages as they are, and the calls that take them in.

`Engine.kept` and `Engine.requests` read, `Import` stores; both use `MessageSnapshot`. Which messages are moved, and
when a store may be, is policy: see `tampu.broker.transfer`.
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
    """A message with all that a store keeps of it, except its lease: that is nobody else's."""

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
    """The group, if the message was published to be delivered in the group's order."""
    waits_turn: bool = False
    """Held until it is the turn of its group."""
    has_key: bool = False
    """Its key stands for it: publishing with the key replaces its payload."""
    cancel_requested: bool = False
    failures: tuple[Failure, ...] = ()
    result: bytes | None = None
    result_until_us: int | None = None


class SnapshotPage(msgspec.Struct, frozen=True):
    items: list[MessageSnapshot]
    cursor: tuple[Any, ...] | None
    """Where the next page starts; None at the end."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """An idempotency key in its window, and the message it stands for."""

    key: str
    digest: bytes
    until_us: int
    id: str
    queue: str | None
    """None: the message is gone, and the store does not know any more where it was."""


class RequestPage(msgspec.Struct, frozen=True):
    items: list[Request]
    cursor: tuple[Any, ...] | None


class Import(msgspec.Struct, frozen=True):
    """Store messages as they are, in their order, all or none; one whose id the tenant has already is left out.

    Each enters its index at the back of its rank. One that has a group to wait for, waits. Idempotency keys that are in
    use here stay as they are. Journaled as ``adopt``, with ``origin`` as its detail. Leased messages are refused.
    Reply: int, how many were stored.
    """

    tenant: str
    queue: str
    items: Sequence[MessageSnapshot]
    origin: str
    requests: Sequence[Request] = ()
    slots: int | None = ORDERED
    """How many messages of a group may go at once; see `tampu.engines.groups`."""
    group_rate: GroupRate | None = None
    """How often one of a group may go."""


class StartJournal(msgspec.Struct, frozen=True):
    """Let the journal go on after these offsets, where it is empty and has such a partition: readers need not notice
    that the house has moved. Reply: Position, of the partitions that were set."""

    after: Position


def check(call: Import) -> None:
    """Refuse what can not be stored as it is."""
    for item in call.items:
        if item.state is State.LEASED:
            raise InvalidMessage("a leased message can not be adopted", field="items", hint="its lease is not ours")
        if (item.ended_us is None) == (item.state in TERMINAL):
            raise InvalidMessage(f"a message that is {item.state} and its end do not agree", field="items")
