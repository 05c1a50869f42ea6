"""Values of a DataFrame's columns as Python values and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from tampu.model.decoders import from_json
from tampu.model.errors import InvalidMessage
from tampu.model.values import finite

# Like Spark's to_json: decimals are numbers, bytes base64, times ISO.
_encode = msgspec.json.Encoder(decimal_format="number").encode
_check = from_json(msgspec.Raw).decode
Convert = Callable[[Any], Any]


def of(batch: pa.RecordBatch, name: str) -> list[Any]:
    """The values of a column, with an `InvalidMessage` for a value that Python cannot represent."""
    field, column = batch.schema.field(name), batch.column(name)
    convert = converter(field)
    found: list[Any]
    try:
        found = column.to_pylist()
    except (OverflowError, ValueError, pa.ArrowException):
        found = [_one(column[i], name) for i in range(len(column))]
    if convert is None:
        return found
    return [value if value is None or isinstance(value, InvalidMessage) else convert(value) for value in found]


def _one(scalar: pa.Scalar, name: str) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError, pa.ArrowException) as error:
        return InvalidMessage(f"{name} has a value out of range: {error}", field=name)


def is_text(field: pa.Field) -> bool:
    """True if payloads of this column are sent as they are, not as JSON."""
    kind = field.type
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def converter(field: pa.Field) -> Convert | None:
    """Converts Arrow values: maps to dictionaries, variants to JSON. None if there is nothing to convert."""
    kind = field.type
    if pa.types.is_map(kind):
        key, item = converter(kind.key_field), converter(kind.item_field)
        return lambda pairs: {_apply(key, k): _apply(item, v) for k, v in pairs}
    if pa.types.is_list(kind):
        each = converter(kind.value_field)
        return None if each is None else lambda values: [_apply(each, value) for value in values]
    if pa.types.is_struct(kind):
        if any((child.metadata or {}).get(b"variant") == b"true" for child in kind):
            return _variant
        inner = {child.name: convert for child in kind if (convert := converter(child)) is not None}
        if inner:
            return lambda row: {name: _apply(inner.get(name), value) for name, value in row.items()}
    return None


def _apply(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def _variant(row: dict[str, bytes]) -> msgspec.Raw:
    from pyspark.sql.types import VariantVal

    return msgspec.Raw(VariantVal(row["value"], row["metadata"]).toJson().encode())


def as_json(value: Any) -> bytes:
    """A value of a column, written as JSON."""
    try:
        raw = _encode(value)
        if b"null" in raw and not finite(value):
            raise ValueError("it contains NaN or infinity")
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise InvalidMessage(f"the payload cannot be written as JSON: {error}", field="payload") from None
    return raw


def check_json(raw: bytes) -> None:
    try:
        raw.decode()
        _check(raw)
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise InvalidMessage(
            f"the payload is not JSON: {error}", field="payload", hint="leave out payloadFormat to send it as it is"
        ) from None


def show(batch: pa.RecordBatch, place: int) -> str:
    """One row as JSON for people; values that JSON does not have are shown as text."""
    row = {name: of(batch.slice(place, 1), name)[0] for name in batch.schema.names}
    return msgspec.json.Encoder(decimal_format="number", enc_hook=str).encode(row).decode()
