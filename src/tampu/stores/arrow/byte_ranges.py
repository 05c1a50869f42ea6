"""Splits rows into parts by size, before they are fetched."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tampu.stores.arrow.bulk_ids import Numbers


def cuts(sizes: Numbers, room: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of consecutive parts of at most ``room`` bytes; a single row may be larger."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + room, "right")))
        yield start, stop
        start = stop
