"""Rows in the binary format of PostgreSQL's COPY, made column by column.

A row begins with the number of its fields, and each field with its length. All fields but the body have the same length
in every row, so everything before the bodies is one array of records.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tampu.engines.port import Load
from tampu.stores.arrow.numbers import Numbers

BEGINNING = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END = b"\xff\xff"
Records = npt.NDArray[np.void]
_SIZE, _LONG, _SHORT = ">i4", ">i8", ">i4"
_ID = np.dtype([("stem", "V11"), ("number", "V5")])


def ids(id_prefix: bytes, numbers: Numbers) -> Records:
    """The ids of a load's messages."""
    made = np.empty(len(numbers), _ID)
    made["stem"] = np.void(id_prefix)
    made["number"] = numbers.astype(_LONG).view([("high", "V3"), ("low", "V5")])["low"]
    return made


def own_ids(own: Records, first: int) -> bytes:
    """The ids as in the journal: MessagePack pairs of position and id."""
    made = np.empty(len(own), [("place", "V1"), ("at", ">u4"), ("id", "V2"), ("value", "V16")])
    made["place"], made["id"] = np.void(b"\xce"), np.void(b"\xc4\x10")
    made["at"] = np.arange(first, first + len(own))
    made["value"] = own.view("V16")
    return made.tobytes()


def messages(
    call: Load, chosen: Numbers | None, q: int, now: int, ahead: int | None, seqs: Numbers, own: Records | None
) -> memoryview:
    """Rows for `copy_messages`: of the ``chosen`` bodies, or of all."""
    count = len(seqs)
    places = pa.py_buffer(np.asarray(call.starts, np.int32))
    bodies = pa.Array.from_buffers(pa.binary(), len(call.numbers), [None, places, pa.py_buffer(call.bodies)])
    if chosen is not None:
        bodies = bodies.take(pa.array(chosen))
    fields = [
        (_LONG, seqs), (_LONG, now), (_LONG, 0), (_SHORT, q), (_SHORT, call.max_attempts), (_LONG, ahead),
        ("V16", None if own is None else own.view("V16")), ("V0", pc.binary_length(bodies).to_numpy()),
    ]  # fmt: skip
    before = _records(count, fields)
    starts = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(before.itemsize))
    heads = pa.Array.from_buffers(pa.binary(), count, [None, starts, pa.py_buffer(before.view(np.uint8))])
    _, ends, joined = pc.binary_join_element_wise(heads, bodies, b"").buffers()
    return memoryview(joined)[: np.frombuffer(ends, np.int32)[count]]


def ready(q: int, seqs: Numbers) -> memoryview:
    """Rows for `copy_ready`."""
    fields = [(_LONG, 0), (_LONG, seqs), (_LONG, seqs), (_SHORT, q), (_SHORT, 0)]
    return _records(len(seqs), fields).view(np.uint8).data


def _records(count: int, fields: list[tuple[str, Any]]) -> Records:
    """Fields with one value, or one per row; None is NULL. Fields of kind V0 are only the length of what follows."""
    kinds = [("fields", ">i2")]
    for at, (kind, value) in enumerate(fields):
        kinds += [(f"size{at}", _SIZE), (f"value{at}", "V0" if value is None else kind)]
    made = np.empty(count, kinds)
    made["fields"] = len(fields)
    for at, (kind, value) in enumerate(fields):
        made[f"size{at}"] = value if kind == "V0" else -1 if value is None else np.dtype(kind).itemsize
        if kind != "V0" and value is not None:
            made[f"value{at}"] = value
    return made
