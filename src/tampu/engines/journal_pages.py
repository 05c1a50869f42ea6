"""What is the same in every journal: how a page is bounded, and what is read out of its records."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from tampu.engines.encoding import DEAD

PARTITION = "0"
"""Of a journal that is one line of offsets."""
MOST_RECORDS = 10_000
"""Looked at for one page, so that a page costs the same however much of the journal is other tenants'."""
_VARYING = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}|\d+|'[^']*'|\"[^\"]*\"")


def lapses(told: Iterable[tuple[tuple[Any, ...], Any]]) -> dict[int, tuple[int, int]]:
    """By queue, how many leases ran out in a commit: messages that are ready again, and dead."""
    found: dict[int, tuple[int, int]] = {}
    for (verb, q, state, _), record in told:
        if verb == "reap":
            back, dead = found.get(q, (0, 0))
            count = len(record.seqs)
            found[q] = (back, dead + count) if state == DEAD else (back + count, dead)
    return found


def fingerprint(error: str) -> str:
    """The same for errors that differ only in numbers, addresses and quoted values."""
    return hashlib.blake2b(_VARYING.sub("?", error).encode(), digest_size=6).hexdigest()
