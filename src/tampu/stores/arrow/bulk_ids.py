"""Makes the ids of many messages in one buffer, without a Python object for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tampu.engines.sqlite.ids import Ids
from tampu.stores.arrow import uuid_texts

Numbers = npt.NDArray[np.int64]

_LENGTH = 36
_END = 18  # the second half of an id follows from the last eight bits of its number
_NO_ID = bytes(16)
_PAIRS = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype="<u2")


class BulkIds:
    """Makes the ids of one file from message numbers; see `tampu.engines.sqlite.ids`."""

    def __init__(self, ids: Ids) -> None:
        self._ends = np.frombuffer("".join(ids.many((), range(256))).encode(), np.uint8).reshape(256, _LENGTH)[
            :, -_END:
        ]

    def column(self, seqs: Numbers) -> pa.StringArray:
        """The ids of these numbers. Not for messages whose id the user gave."""
        count = len(seqs)
        # 60 bits as hexadecimal, four at a time from the top: the first fifteen digits.
        high = np.ascontiguousarray((seqs.view(np.uint64) >> 8 << 4).astype(">u8")).view(np.uint8)
        digits = _PAIRS[high].view(np.uint8).reshape(count, 16)
        text = np.empty((count, _LENGTH), np.uint8)
        text[:, :8] = digits[:, :8]
        text[:, 8] = ord("-")
        text[:, 9:13] = digits[:, 8:12]
        text[:, 13] = ord("-")
        text[:, 14] = ord("7")
        text[:, 15:18] = digits[:, 12:15]
        text[:, 18:] = self._ends[seqs & 0xFF]
        return _texts(text)


def own_column(ids: Sequence[bytes | None]) -> tuple[npt.NDArray[np.bool_], pa.StringArray]:
    """Which messages have an id that the user gave, and these ids as text."""
    count = len(ids)
    there = np.fromiter((id is not None for id in ids), np.bool_, count)
    raw = np.frombuffer(b"".join(id or _NO_ID for id in ids), np.uint8)
    return there, uuid_texts.of_bytes(raw.reshape(count, 16))


def _texts(text: npt.NDArray[np.uint8]) -> pa.StringArray:
    offsets = np.arange(0, text.size + 1, _LENGTH, dtype=np.int32)
    return pa.StringArray.from_buffers(len(text), pa.py_buffer(offsets), pa.py_buffer(text))
