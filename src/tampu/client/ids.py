"""Message ids made by the client (increasing UUIDv7), so that a publish can be repeated safely.

The distance to the next id is random too, so who knows one cannot guess it.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time

_RANDOM_BITS = 74
_STEP_BYTES = 7
"""Random bytes between two ids. Ten thousand such steps fit into a millisecond."""
_lock = threading.Lock()
_last = 0


def mint(count: int) -> list[str]:
    """``count`` new ids, each larger than all before it in this process."""
    global _last  # noqa: PLW0603 - one counter for the process
    now = time.time_ns() // 1_000_000 << _RANDOM_BITS
    raw = secrets.token_bytes(_STEP_BYTES * count)
    steps = [int.from_bytes(raw[at : at + _STEP_BYTES], "big") + 1 for at in range(0, len(raw), _STEP_BYTES)]
    with _lock:
        # The top random bit stays 0, which leaves room to count up.
        first = max(_last, now | secrets.randbits(_RANDOM_BITS - 1))
        values = list(itertools.accumulate(steps, initial=first))[1:]
        _last = values[-1] if values else first
    return [_text(value) for value in values]


def _text(value: int) -> str:
    text = f"{value >> 74:012x}"
    high, low = value >> 62 & 0xFFF, value & 0x3FFF_FFFF_FFFF_FFFF
    return f"{text[:8]}-{text[8:]}-7{high:03x}-{0x8000 | low >> 48:04x}-{low & 0xFFFF_FFFF_FFFF:012x}"
