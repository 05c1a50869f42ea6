"""What a tool call has: the store, what the caller may do, and where its lake is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tampu.broker.async_store import AsyncStore
from tampu.mcp.confirmations import Confirmations
from tampu.model.grants import PERMISSIONS

Offload = Callable[..., Awaitable[Any]]
"""Calls a function that blocks, away from the event loop."""


class Access(msgspec.Struct, frozen=True):
    """What the caller may do. It decides what is listed; the store or its server decides what is done."""

    permissions: frozenset[str]
    """In some queue."""
    everywhere: frozenset[str]
    """In all queues, existing and future."""
    all_tenants: bool = True

    def may(self, permission: str, *, everywhere: bool = False, all_tenants: bool = False) -> bool:
        """``permission`` may name several: ``view or review``."""
        granted = self.everywhere if everywhere else self.permissions
        return not granted.isdisjoint(permission.split(" or ")) and (self.all_tenants or not all_tenants)

    def read_only(self) -> Access:
        """Only reading; ``admin`` stays for the audit trail, no tool changes something with it."""
        return Access(self.permissions & {"view", "admin"}, self.everywhere & {"view", "admin"}, self.all_tenants)


FULL = Access(frozenset(PERMISSIONS), frozenset(PERMISSIONS))
"""The permissions of a program that has opened the store itself."""


class ToolContext:
    def __init__(
        self,
        store: AsyncStore,
        access: Access,
        confirmations: Confirmations,
        *,
        lake: str | None = None,
        offload: Offload = asyncio.to_thread,
    ) -> None:
        self.store = store
        self.access = access
        self.confirmations = confirmations
        self.lake = lake
        """The path of the lake; None if there is none, or the caller may not view all queues."""
        self.offload = offload
