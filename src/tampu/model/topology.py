"""What applying a topology file changes."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class TopologyChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a topology file that is not as the store has it."""

    section: str
    """Such as ``queues`` or ``rules``."""
    name: str
    action: Literal["create", "change", "delete"]
    before: Any = None
    """Its fields in the store; None if it is new."""
    after: Any = None
    """Its fields in the file; None if it is deleted."""


class Applied(msgspec.Struct, frozen=True):
    """What applying a topology changed, or with ``dry_run`` would change."""

    changes: list[TopologyChange]
    dry_run: bool = False

    def __len__(self) -> int:
        return len(self.changes)
