"""`bronze.payloads`: bronze.messages with payload and result as values that can be asked into, made while reading.

In Spark they are VARIANT (``payload:order.total``), in DuckDB JSON (``payload.order.total``). Stored are the bytes as
they were published: delta-rs knows no VARIANT (see docs/decisions/0021-lake-in-spark-sql.md). A payload that is neither
JSON nor MessagePack, or is not what it says, is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tampu.model.message import JSON, MSGPACK

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame

NAME = "bronze.payloads"
SOURCE = "bronze.messages"


def as_json(raw: bytes | None) -> str | None:
    """MessagePack as JSON; bytes in it as base64, times as text."""
    if raw is None:
        return None
    try:
        return msgspec.json.encode(msgspec.msgpack.decode(raw), enc_hook=str).decode()
    except (msgspec.DecodeError, msgspec.EncodeError, ValueError, TypeError):
        return None


def parsed(messages: DataFrame) -> DataFrame:
    """Rows of bronze.messages for Spark."""
    from pyspark.sql.functions import expr, udf

    packed = expr(f"if(content_type = '{MSGPACK}', payload, NULL)")
    text = messages.withColumn("_unpacked", udf(as_json, "string", useArrow=True)(packed))
    plain = f"if(content_type = '{JSON}', CAST(payload AS string), _unpacked)"
    values = {"payload": f"try_parse_json({plain})", "result": "try_parse_json(result)"}
    return text.selectExpr(
        *[f"{values[name]} AS {name}" if name in values else f"`{name}`" for name in messages.columns]
    )


def create_view(connection: duckdb.DuckDBPyConnection) -> None:
    """The same for DuckDB, over its view of bronze.messages."""
    from duckdb.func import SPECIAL

    connection.create_function("_from_msgpack", as_json, ["BLOB"], "VARCHAR", null_handling=SPECIAL)
    connection.execute(f"""
        CREATE VIEW {NAME} AS SELECT * REPLACE (
          CASE WHEN content_type = '{JSON}' THEN try_cast(try(decode(payload)) AS JSON)
            WHEN content_type = '{MSGPACK}' THEN CAST(_from_msgpack(payload) AS JSON) END AS payload,
          try_cast(result AS JSON) AS result) FROM {SOURCE}
    """)


def view_of(name: str) -> tuple[str, Any]:
    """The table that an input is read from, and what is made of its rows."""
    return (SOURCE, parsed) if name == NAME else (name, lambda rows: rows)
