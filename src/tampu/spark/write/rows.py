"""Turns rows of a DataFrame into packed messages: an Arrow batch in, an Arrow batch of checked and packed rows out.

The rules are those of `Store.publish` (broker/validate.py). A batch with only payloads, or payloads and types, is
packed column by column, any other row by row. A row that cannot become a message is returned with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tampu.broker import validate
from tampu.broker.settings import Settings
from tampu.engines.port import Item
from tampu.model.errors import InvalidMessage, TampuError
from tampu.model.message import BYTES, JSON, TEXT, NewMessage, unpack_body
from tampu.spark.write import values

STAGED = pa.schema(
    [
        ("row", pa.int64()),  # its number in the partition
        ("queue", pa.string()),  # null: the queue of the option
        ("type", pa.string()),  # null: the default type
        ("more", pa.binary()),  # other fields of a message that is not simple
        ("body", pa.binary()),
    ]
)
BAD = pa.schema(
    [
        ("job", pa.string()),
        ("partition", pa.int32()),
        ("row", pa.int64()),
        ("field", pa.string()),
        ("error", pa.string()),
        ("columns", pa.string()),  # of the row, as JSON
    ]
)
NO_TYPE = "message"
_encode = msgspec.msgpack.Encoder().encode
_MORE = tuple(name for name in Item.__struct_fields__ if name not in ("body", "packed", "id"))


class Bad(msgspec.Struct, frozen=True):
    """A row that cannot become a message."""

    row: int
    error: TampuError
    place: int
    """Its index in the batch."""


class Packer:
    """Packs the batches of one partition."""

    def __init__(self, queue: str | None, payload_format: str, settings: Callable[[str], Settings]) -> None:
        self._queue = queue
        self._json = payload_format == "json"
        self._settings = settings
        self.queues: Counter[str] = Counter()
        """Number of rows by queue, without rows with a key, which may replace another message."""

    def pack(self, batch: pa.RecordBatch, first: int) -> tuple[pa.RecordBatch, list[Bad]]:
        """The good rows in the columns of `STAGED`, and the bad ones; ``first`` is the number of the first row."""
        packed = self._in_columns(batch, first)
        return (packed, []) if packed is not None else self._by_rows(batch, first)

    # -- column by column

    def _in_columns(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch | None:
        """None if the batch must be packed row by row."""
        payload, queue = batch.column("payload"), self._queue
        if queue is None or not set(batch.schema.names) <= {"payload", "type"} or self._json or payload.null_count:
            return None
        kind = payload.type
        if kind not in (pa.binary(), pa.string()):
            return None
        settings = self._settings(queue)
        if not settings.simple:
            return None
        lengths = pc.binary_length(payload)
        if (pc.max(lengths).as_py() or 0) > settings.max_payload:
            return None
        types = batch.column("type") if "type" in batch.schema.names else None
        heads = _type_heads(types)
        if heads is None:
            return None
        tail = _encode(BYTES if kind == pa.binary() else TEXT)
        bodies = pc.binary_join_element_wise(heads, _length_heads(lengths), payload.cast(pa.binary()), tail, b"")
        self.queues[queue] += len(batch)
        rows = pa.array(np.arange(first, first + len(batch), dtype=np.int64))
        empty = pa.nulls(len(batch), pa.string())
        more = pa.nulls(len(batch), pa.binary())
        return pa.record_batch([rows, empty, empty if types is None else types, more, bodies], schema=STAGED)

    # -- row by row

    def _by_rows(self, batch: pa.RecordBatch, first: int) -> tuple[pa.RecordBatch, list[Bad]]:
        columns = {name: values.of(batch, name) for name in batch.schema.names}
        payloads = columns.pop("payload")
        queues = columns.pop("queue", None)
        text = values.is_text(batch.schema.field("payload"))
        good: list[tuple[int, str | None, str | None, bytes | None, bytes]] = []
        bad: list[Bad] = []
        for place in range(len(batch)):
            try:
                queue = self._queue_of(queues, place)
                fields = {name: _checked(column[place]) for name, column in columns.items()}
                item = self._item(queue, text, _checked(payloads[place]), fields)
            except TampuError as error:
                bad.append(Bad(first + place, error, place))
                continue
            self.queues[queue] += not (item.body.key or item.body.idempotency_key)
            kind = item.body.type
            good.append(
                (
                    first + place,
                    None if queue == self._queue else queue,
                    None if kind == NO_TYPE else kind,
                    None if is_plain(item, self._settings(queue)) else _encode([getattr(item, name) for name in _MORE]),
                    item.packed,
                )
            )
        arrays = [
            pa.array(column, field.type) for column, field in zip(zip(*good, strict=True), STAGED, strict=True)
        ] if good else [pa.nulls(0, field.type) for field in STAGED]  # fmt: skip
        return pa.record_batch(arrays, schema=STAGED), bad

    def _queue_of(self, queues: Sequence[Any] | None, place: int) -> str:
        named = None if queues is None else _checked(queues[place])
        if named is None:
            if self._queue is None:
                raise InvalidMessage("the row names no queue", field="queue", hint='fill it, or .option("queue", …)')
            return self._queue
        return validate.name(named, "queue")

    def _item(self, queue: str, text: bool, payload: Any, fields: dict[str, Any]) -> Item:
        if payload is None:
            raise InvalidMessage("the payload is null", field="payload")
        content_type = fields.pop("content_type", None)
        if text:
            if content_type is None:
                content_type = JSON if self._json else BYTES if isinstance(payload, bytes) else TEXT
            payload = payload if isinstance(payload, bytes) else payload.encode()
            if content_type == JSON:
                values.check_json(payload)
        else:
            if content_type not in (None, JSON):
                raise InvalidMessage(
                    "this payload is written as JSON", field="content_type", hint=f"leave it out, or use {JSON}"
                )
            payload, content_type = values.as_json(payload), JSON
        given: dict[str, Any] = {
            name: float(value) if isinstance(value, Decimal) else value
            for name, value in fields.items()
            if value is not None
        }
        new = NewMessage(payload, content_type=content_type, **given)
        return validate.item(queue, self._settings(queue), new)


def is_plain(item: Item, settings: Settings) -> bool:
    """True if it can be part of a `Load`."""
    return item.max_attempts == settings.max_attempts and validate.is_simple(item)


def item(packed: bytes, more: bytes | None, max_attempts: int, id: str) -> Item:
    """A staged row as an item of a `Publish`."""
    made = Item(unpack_body(packed), packed, max_attempts, id=id)
    if more is None:
        return made
    return msgspec.structs.replace(made, **dict(zip(_MORE, msgspec.msgpack.decode(more), strict=True)))


def _type_heads(types: pa.Array | None) -> pa.Array | pa.Scalar | None:
    """Bodies up to the payload: the marker of three fields, and the type. None if a type is not valid."""
    if types is None:
        return pa.scalar(b"\x93" + _encode(NO_TYPE), pa.binary())
    names = pc.unique(types).to_pylist()
    try:
        heads = [b"\x93" + _encode(NO_TYPE if name is None else validate.type_name(name)) for name in names]
    except InvalidMessage:
        return None
    return pa.array(heads, pa.binary()).take(pc.index_in(types, pa.array(names, pa.string())))


def _length_heads(lengths: pa.Array) -> pa.Array:
    """The MessagePack headers of bytes with these lengths."""
    found = lengths.dictionary_encode()
    heads = [_length_head(length) for length in found.dictionary.to_pylist()]
    return pa.array(heads, pa.binary()).take(found.indices)


def _length_head(length: int) -> bytes:
    if length < 1 << 8:
        return bytes((0xC4, length))
    return b"\xc5" + length.to_bytes(2, "big") if length < 1 << 16 else b"\xc6" + length.to_bytes(4, "big")


def _checked(value: Any) -> Any:
    if isinstance(value, TampuError):
        raise value
    return value
