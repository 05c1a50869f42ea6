"""Tails of ids that only the store can compute: who knows some ids cannot guess another.

A tail is a pseudo-random function of the number of its message, under a secret of the store: SHAKE-128 of the secret
and a block of 256 numbers. The tails of a block are one stream of bytes, so a batch of consecutive numbers costs one
hash, and a single message, the first of its block, costs the beginning of a stream.
"""

from __future__ import annotations

import hashlib

BLOCK_BITS = 8
BLOCK = 1 << BLOCK_BITS
_AT_ONCE = 168
"""Bytes that SHAKE-128 makes at once."""


def stream(secret: bytes, block: int, size: int) -> bytes:
    """At least the first ``size`` bytes of the stream of a block."""
    return hashlib.shake_128(secret + block.to_bytes(8, "big")).digest(-(-size // _AT_ONCE) * _AT_ONCE)
