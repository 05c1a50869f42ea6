"""Definitions: what users put into a store under a name to say what may happen to messages."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tampu.model.patterns import Pattern

Compatibility = Literal["none", "backward", "forward", "full"]


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What all definitions have."""

    name: str
    version: int = 0
    """1, 2, …: set by the store, one more with each change."""


class Schema(Definition, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A JSON Schema that payloads must match."""

    schema: dict[str, Any]
    queues: tuple[str, ...] = ()
    """Patterns of queue names, such as ``orders`` or ``shop.*``; empty: all queues."""
    types: tuple[str, ...] = ()
    """Patterns of message types, such as ``order.*``; empty: all types."""
    compatibility: Compatibility = "none"
    """What a new version must be able to do: ``backward`` accepts all that the old one accepted, ``forward`` accepts
    nothing that the old one refused, ``full`` both."""

    def applies_to(self, queue: str) -> bool:
        return matches(self.queues, queue)


def matches(texts: tuple[str, ...], name: str) -> bool:
    """True if one of the patterns matches the name, or there is none."""
    return not texts or any(Pattern(text).matches(name) for text in texts)
