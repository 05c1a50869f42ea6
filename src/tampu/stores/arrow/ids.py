"""Ids as text: many at once, without a Python object for each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tampu.engines.encoding import BLOCK, BLOCK_BITS, TAIL_BITS, TAIL_BYTES, IdScheme, secret_tails
from tampu.stores.arrow.numbers import Numbers

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


def of_numbers(tail: int, secret: bytes, since: int, width: int, seqs: Numbers) -> pa.StringArray:
    """From message numbers; see `tampu.engines.sqlite.ids` and `tampu.engines.redis.ids`.

    After ``since``, the last ``width`` bytes of an id are its secret tail.
    """
    numbers = seqs.astype(np.uint64)
    high = numbers >> np.uint64(20) << np.uint64(16) | np.uint64(0x7000) | numbers >> np.uint64(8) & np.uint64(0xFFF)
    begin = np.uint64(tail >> 8 * width << 8 * width)
    ends: npt.NDArray[np.uint64] = np.where(
        seqs > since, begin | _secret_tails(secret, seqs, width, step=2), np.uint64(tail)
    )
    low = np.uint64(1 << 63) | ends | (numbers & np.uint64(0xFF)) << np.uint64(54)
    return of_halves(high, low)


def of_stamps(scheme: IdScheme, stamps: Numbers, seqs: Numbers) -> pa.StringArray:
    """From publish times (milliseconds) and message numbers; see `tampu.engines.encoding.Ids`."""
    high = stamps.astype(np.uint64) << np.uint64(16) | np.uint64(0x7000) | (seqs >> 40).astype(np.uint64)
    middle = (np.int64(0x8000) | seqs >> 26 & 0x3FFF).astype(np.uint64) << np.uint64(48)
    secret = _secret_tails(scheme.secret, seqs, TAIL_BYTES) & np.uint64((1 << TAIL_BITS) - 1)
    ends: npt.NDArray[np.uint64] = np.where(seqs > scheme.since, secret, np.uint64(scheme.tail))
    low = middle | (seqs & (1 << 26) - 1).astype(np.uint64) << np.uint64(TAIL_BITS) | ends
    return of_halves(high, low)


def _secret_tails(secret: bytes, seqs: Numbers, width: int, step: int = 1) -> npt.NDArray[np.uint64]:
    """The secret tails of messages, ``width`` bytes each. ``step`` is the distance of numbers that have one."""
    raw = np.zeros((len(seqs), 8), np.uint8)
    if len(seqs):
        places = (seqs & BLOCK - 1) // step
        blocks, rows = np.unique(seqs >> BLOCK_BITS, return_inverse=True)
        size = (int(places.max()) + 1) * width
        streams = b"".join([secret_tails(secret, block, size)[:size] for block in blocks.tolist()])
        raw[:, -width:] = np.frombuffer(streams, np.uint8).reshape(len(blocks), -1, width)[rows, places]
    return raw.view(">u8").ravel().astype(np.uint64)


def with_given(made: pa.StringArray, given: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """The ids that users gave, where there is one (16 bytes), and the generated ones elsewhere."""
    if given.null_count == len(given):
        return made
    filled = pc.fill_null(given, bytes(16))
    raw = np.frombuffer(filled.buffers()[1], np.uint8).reshape(-1, 16)[filled.offset : filled.offset + len(filled)]
    return pc.if_else(given.is_valid(), of_bytes(raw), made)
