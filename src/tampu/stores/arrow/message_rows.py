"""Arrow batches of messages of any store: one function per column, called only for the wanted columns."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tampu.model.decoders import from_msgpack
from tampu.model.message import Body
from tampu.stores import columns
from tampu.stores.arrow import bulk_bodies
from tampu.stores.arrow.numbers import Numbers
from tampu.stores.arrow.snapshot_rows import NONE, SnapshotRows
from tampu.stores.port import MessageQuery

_IN_BODY = {
    name: kind
    for name, kind in zip(columns.MESSAGES.names, columns.MESSAGES.types, strict=True)
    if name in Body.__struct_fields__
}
_decode = from_msgpack(list[Body]).decode
_to_json = msgspec.json.Encoder(enc_hook=str).encode


class Found(msgspec.Struct):
    """The messages of one batch, column by column."""

    rows: SnapshotRows
    ids: Callable[[], pa.Array]
    names: Mapping[int, tuple[str, str]]
    """(tenant, queue) of each q."""
    attempts: Numbers
    max_attempts: Numbers
    created: Numbers
    expires: Numbers | None
    bodies: pa.BinaryArray | Sequence[Body]
    """Packed or decoded."""
    errors: Sequence[str | None] | None = None
    results: Sequence[bytes | None] | None = None


def batch(found: Found, wanted: Sequence[str]) -> pa.RecordBatch:
    """These columns of the messages, in this order."""
    schema = columns.chosen(columns.MESSAGES, wanted)
    makers = _of_places(found)
    if in_bodies(wanted):
        makers |= _of_bodies(found.bodies)
    return pa.RecordBatch.from_arrays([makers[name]() for name in schema.names], schema=schema)


def in_bodies(wanted: Sequence[str]) -> bool:
    """True if one of these columns is in the packed body."""
    return not _IN_BODY.keys().isdisjoint(wanted)


def in_order(found: pa.Table, ids: Sequence[str]) -> pa.Table:
    """The rows of these ids, in the order of the ids."""
    places = {id: i for i, id in enumerate(found.column("id").to_pylist())}
    return found.take(pa.array([places[id] for id in ids if id in places], pa.int64()))


def queried(found: Found, query: MessageQuery) -> pa.RecordBatch:
    """The columns of the query, of the messages that were published in its time range."""
    made, created = batch(found, query.columns), found.created
    if query.created_from is None and query.created_to is None:
        return made
    kept = np.ones(len(created), np.bool_)
    if query.created_from is not None:
        kept &= created >= query.created_from
    if query.created_to is not None:
        kept &= created < query.created_to
    return made.filter(pa.array(kept))


def _of_places(found: Found) -> dict[str, Callable[[], pa.Array]]:
    rows, count, text = found.rows, len(found.rows), pa.string()
    queues, place = np.unique(rows.q, return_inverse=True)

    def name(part: int) -> pa.Array:
        return pa.array([found.names[q][part] for q in queues.tolist()], text).take(pa.array(place))

    def texts(values: Sequence[str | None] | None) -> pa.Array:
        return pa.nulls(count, text) if values is None else pa.array(values, text)

    def results() -> list[str | None]:
        given = found.results or ()
        return [None if raw is None else _to_json(msgspec.msgpack.decode(raw)).decode() for raw in given]

    return {
        "id": found.ids,
        "tenant": lambda: name(0),
        "queue": lambda: name(1),
        "state": lambda: columns.state_names().take(pa.array(rows.state)),
        "attempts": lambda: pa.array(found.attempts, pa.int32()),
        "max_attempts": lambda: pa.array(found.max_attempts, pa.int32()),
        "created_at": lambda: pa.array(found.created, pa.int64()).cast(columns.TIME),
        "run_at": lambda: _times(rows.run_at, count),
        "expires_at": lambda: _times(found.expires, count),
        "ended_at": lambda: _times(rows.ended_at, count),
        "reason": lambda: texts(rows.reason),
        "last_error": lambda: texts(found.errors),
        "result": lambda: texts(None if found.results is None else results()),
    }


def _of_bodies(packed: pa.BinaryArray | Sequence[Body]) -> dict[str, Callable[[], pa.Array]]:
    """Makers of the columns in the body. Simple bodies are unpacked all at once."""
    count = len(packed)
    bodies: Sequence[Body]
    if isinstance(packed, pa.BinaryArray):
        joined, ends = _joined(packed)
        plain = bulk_bodies.unpack(joined, ends)
        if plain is not None:
            return {name: functools.partial(pa.nulls, count, kind) for name, kind in _IN_BODY.items()} | {
                "type": lambda: plain.type,
                "payload": lambda: plain.payload,
                "content_type": lambda: plain.content_type,
                "priority": lambda: pa.array(np.zeros(count, np.int64)),
            }
        bodies = _decode(b"\xdd" + count.to_bytes(4, "big") + bytes(joined))
    else:
        bodies = packed

    def field(name: str, kind: pa.DataType) -> pa.Array:
        values: list[Any] = list(map(operator.attrgetter(name), bodies))
        if kind == columns.PAIRS:
            values = [list(value.items()) if value else None for value in values]
        return pa.array(values, pa.int64()).cast(kind) if kind == columns.TIME else pa.array(values, kind)

    return {name: functools.partial(field, name, kind) for name, kind in _IN_BODY.items()}


def _joined(packed: pa.BinaryArray) -> tuple[pa.Buffer, Numbers]:
    """The concatenated bytes of all values, and where each ends."""
    _, offsets, data = packed.buffers()
    ends = np.frombuffer(offsets, np.int32)[packed.offset : packed.offset + len(packed) + 1].astype(np.int64)
    first, last = int(ends[0]), int(ends[-1])
    joined = pa.py_buffer(b"") if data is None else data.slice(first, last - first)
    return joined, ends[1:] - first


def _times(values: Numbers | None, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, columns.TIME)
    return pa.array(values, pa.int64(), mask=values == NONE).cast(columns.TIME)
