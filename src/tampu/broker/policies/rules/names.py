"""Names that rules and what follows from them share."""

from __future__ import annotations

FOLLOWER = "rules"
"""The follower of rules whose trigger is not ``published``."""
HOPS = "tampu-hops"
"""The header that counts how often rules have moved or copied a message."""
MOST_HOPS = 8


def hops_of(headers: dict[str, str] | None) -> int:
    text = (headers or {}).get(HOPS, "0")
    return int(text) if text.isdecimal() and len(text) < 4 else MOST_HOPS
