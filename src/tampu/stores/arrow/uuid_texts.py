"""Ids as text, from numbers or bytes: many at once, without a Python object for each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_LENGTH = 36
_GROUPS = (("a", "<u8"), ("b", "<u4"), ("c", "<u4"), ("d", "<u4"), ("e", "<u8"), ("f", "<u4"))
"""The digits of an id (8-4-4-4-12) in pieces, each copied as one number."""
_DASHES = (8, 13, 18, 23)
_TEXT = np.dtype(
    {
        "names": [name for name, _ in _GROUPS],
        "formats": [kind for _, kind in _GROUPS],
        "offsets": [0, 9, 14, 19, 24, 32],
        "itemsize": _LENGTH,
    }
)
_PAIRS = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype="<u2")


def of_bytes(raw: npt.NDArray[np.uint8]) -> pa.StringArray:
    """From an array with 16 bytes per id."""
    count = len(raw)
    digits = np.take(_PAIRS, raw).view(np.dtype(list(_GROUPS))).ravel()
    text = np.empty((count, _LENGTH), np.uint8)
    text[:, _DASHES] = ord("-")
    placed = text.view(_TEXT).ravel()
    for name, _ in _GROUPS:
        placed[name] = digits[name]
    offsets = np.arange(0, text.size + 1, _LENGTH, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def of_halves(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> pa.StringArray:
    """From the first and the last 64 bits of each id."""
    raw = np.empty((len(high), 2), ">u8")
    raw[:, 0], raw[:, 1] = high, low
    return of_bytes(raw.view(np.uint8).reshape(len(high), 16))
