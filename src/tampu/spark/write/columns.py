"""The columns that a write accepts, and their types."""

from __future__ import annotations

from pyspark.sql.types import (
    ByteType,
    CharType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from tampu.model.errors import InvalidConfig

_TEXT = (StringType, CharType, VarcharType)
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_SPAN = (*_WHOLE, FloatType, DoubleType, DecimalType, DayTimeIntervalType)

_TEXTS = (
    "queue", "type", "key", "idempotency_key", "correlation_id", "causation_id", "parent_id", "group", "source",
    "content_type",
)  # fmt: skip
_KINDS: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    **dict.fromkeys(_TEXTS, (_TEXT, "string")),
    **dict.fromkeys(("priority", "max_attempts"), (_WHOLE, "bigint")),
    **dict.fromkeys(("run_at", "deadline"), ((TimestampType,), "timestamp")),
    **dict.fromkeys(("delay", "ttl"), (_SPAN, "seconds as a number, or an interval of days to seconds")),
    **dict.fromkeys(("labels", "headers"), ((MapType,), "map<string,string>")),
}
KNOWN = ("payload", *_KINDS)


def choose(schema: StructType, queue: str | None, *, ignore: bool) -> dict[str, str]:
    """The columns to write: name in the DataFrame to name in a message."""
    chosen: dict[str, str] = {}
    for field in schema:
        name = field.name.lower()
        if name not in KNOWN:
            if not ignore:
                raise InvalidConfig(
                    f"a message has no column {field.name!r:.100}",
                    field="unknownColumns",
                    hint=f'known: {", ".join(KNOWN)}; .option("unknownColumns", "ignore") leaves others out',
                )
        elif name in chosen.values():
            raise InvalidConfig(f"there are two columns {name}", field=name, hint="select one of them")
        else:
            _check(name, field.dataType)
            chosen[field.name] = name
    if "payload" not in chosen.values():
        raise InvalidConfig(
            "there is no column payload",
            field="payload",
            hint="df.select(struct('*').alias('payload')) sends whole rows as JSON",
        )
    if queue is None and "queue" not in chosen.values():
        raise InvalidConfig("no queue is named", field="queue", hint='.option("queue", "emails"), or a column queue')
    return chosen


def _check(name: str, kind: DataType) -> None:
    if name in _KINDS:
        kinds, wanted = _KINDS[name]
        fits = isinstance(kind, kinds)
        if isinstance(kind, MapType):
            fits = fits and isinstance(kind.keyType, _TEXT) and isinstance(kind.valueType, _TEXT)
        if not fits:
            raise InvalidConfig(
                f"the column {name} is {kind.simpleString()}", field=name, hint=f"it must be {wanted}; cast it"
            )
