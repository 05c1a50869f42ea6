"""Unpacks message numbers (`tampu.engines.encoding.pack_seqs`), many packs at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tampu.stores.arrow.bulk_ids import Numbers

_RANGE = np.dtype([("first", ">i8"), ("step", ">i8"), ("count", ">u4")])


def unpack(packs: Sequence[bytes]) -> tuple[Numbers, Numbers]:
    """All numbers, and how many each pack has."""
    ranges = np.fromiter((len(pack) == _RANGE.itemsize for pack in packs), np.bool_, len(packs))
    if ranges.all():
        runs = np.frombuffer(b"".join(packs), _RANGE)
        counts = runs["count"].astype(np.int64)
        places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        steps = np.repeat(runs["step"].astype(np.int64), counts)
        return np.repeat(runs["first"].astype(np.int64), counts) + steps * places, counts
    parts = [unpack([pack])[0] if one else np.frombuffer(pack, ">i8") for pack, one in zip(packs, ranges, strict=True)]
    return np.concatenate(parts).astype(np.int64), np.fromiter(map(len, parts), np.int64, len(parts))
