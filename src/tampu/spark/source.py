"""``format("tampu")``: chooses the reader or writer.

The option ``kind`` says what to read: ``messages`` (the default), ``journal`` or, as a stream only, ``queue``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from tampu.model.errors import InvalidConfig
from tampu.spark.options import Options
from tampu.stores import columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

KINDS = ("messages", "journal", "queue")


class TampuDataSource(DataSource):
    """Queues, their messages and their journal."""

    @classmethod
    def name(cls) -> str:
        return "tampu"

    def _kind(self, default: str = "messages") -> str:
        return Options(self.options).choice("kind", KINDS, default)

    def schema(self) -> str | StructType:
        kind = self._kind()
        if kind == "queue":
            from tampu.spark.queue.stream import schema

            return schema(Options(self.options))
        if kind == "messages":
            from tampu.spark.read import message_columns

            return columns.ddl(message_columns(Options(self.options)))
        return columns.ddl(columns.JOURNAL)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - ours is fixed
        from tampu.spark.read import reader

        return reader(self._kind(), Options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002 - ours is fixed; Spark's name
        options = Options(self.options)
        kind = self._kind()
        if kind == "journal":
            from tampu.spark.journal_stream import JournalStreamReader

            return JournalStreamReader(options)
        if kind == "queue":
            from tampu.spark.queue.stream import QueueStreamReader

            return QueueStreamReader(options)
        raise InvalidConfig(
            "a stream reads the journal or a queue", field="kind", hint='.option("kind", "journal") or "queue"'
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tampu.spark.write.writer import BatchWriter

        _append_only(overwrite)
        return BatchWriter(Options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tampu.spark.write.writer import StreamWriter

        _append_only(overwrite)
        return StreamWriter(Options(self.options), schema)


def _append_only(overwrite: bool) -> None:
    if overwrite:
        raise InvalidConfig("a write can only append", field="mode", hint='.mode("append"); purge empties a queue')
