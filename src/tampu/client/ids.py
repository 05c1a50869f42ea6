"""Message ids made by the client (increasing UUIDv7), so that a publish can be repeated safely."""

from __future__ import annotations

import secrets
import threading
import time

_RANDOM_BITS = 74
_lock = threading.Lock()
_last = 0


def mint(count: int) -> list[str]:
    """``count`` new ids, each larger than all before it in this process."""
    global _last  # noqa: PLW0603 - one counter for the process
    now = time.time_ns() // 1_000_000 << _RANDOM_BITS
    with _lock:
        # The top random bit stays 0, which leaves room to count up.
        first = max(_last + 1, now | secrets.randbits(_RANDOM_BITS - 1))
        _last = first + count - 1
    return [_text(value) for value in range(first, first + count)]


def _text(value: int) -> str:
    text = f"{value >> 74:012x}"
    high, low = value >> 62 & 0xFFF, value & 0x3FFF_FFFF_FFFF_FFFF
    return f"{text[:8]}-{text[8:]}-7{high:03x}-{0x8000 | low >> 48:04x}-{low & 0xFFFF_FFFF_FFFF:012x}"
