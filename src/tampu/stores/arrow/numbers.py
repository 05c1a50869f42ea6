"""Columns of numbers, without a Python object for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

_RANGE = np.dtype([("first", ">i8"), ("step", ">i8"), ("count", ">u4")])


def unpack_seqs(packs: Sequence[bytes]) -> tuple[Numbers, Numbers]:
    """All numbers of many packs (`tampu.engines.encoding.pack_seqs`), and how many each pack has."""
    sizes = np.fromiter(map(len, packs), np.int64, len(packs))
    even = sizes == _RANGE.itemsize
    ranges = np.frombuffer(b"".join(pack for pack in packs if len(pack) == _RANGE.itemsize), _RANGE)
    counts, firsts, steps = sizes // 8, np.zeros(len(packs), np.int64), np.zeros(len(packs), np.int64)
    counts[even], firsts[even], steps[even] = ranges["count"], ranges["first"], ranges["step"]
    pack = np.repeat(np.arange(len(packs)), counts)
    within = np.arange(len(pack)) - (np.cumsum(counts) - counts)[pack]
    seqs = firsts[pack] + steps[pack] * within
    if not even.all():
        rest = b"".join(pack for pack in packs if len(pack) != _RANGE.itemsize)
        seqs[~even[pack]] = np.frombuffer(rest, ">i8")
    return seqs, counts


def cuts(sizes: Numbers, room: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of consecutive parts of at most ``room`` bytes; a single row may be larger."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + room, "right")))
        yield start, stop
        start = stop
