"""The embedded file as an Arrow store. Executors open the file themselves, so they must run on its machine."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tampu.engines.sqlite import SqliteEngine
from tampu.engines.sqlite.database import statements
from tampu.engines.sqlite.ids import TAIL_BYTES
from tampu.stores.arrow import ids, packed_journal
from tampu.stores.arrow.numbers import Numbers, unpack_seqs
from tampu.stores.arrow.packed_journal import Record, Spread, Unpacked
from tampu.stores.sql.store import SqlStore

R = TypeVar("R")
BYTES = 4 << 20
"""A batch ends with the message whose body reaches this size."""
_FIELDS = {
    "seq": pa.int64(), "created": pa.int64(), "max_attempts": pa.int32(), "expires": pa.int64(), "ahead": pa.int64(),
    "id": pa.binary(16), "body": pa.binary(),
}  # fmt: skip


class SqliteStore(SqlStore[SqliteEngine]):
    sparse = 4

    def staging(self) -> str | None:
        return f"{self.engine.path}-stage"

    def ids(self, stamps: Numbers, seqs: Numbers) -> pa.StringArray:  # noqa: ARG002 - the number has the time
        return self._column(seqs)

    def _column(self, seqs: Numbers) -> pa.StringArray:
        scheme = self.engine.registry.id
        return ids.of_numbers(scheme.tail, scheme.secret, scheme.since, TAIL_BYTES, seqs)

    def _unpacked(self, records: Sequence[Record]) -> Unpacked:
        verbs, states, workers, packed, attempts, types, details, own = packed_journal.decode(records)

        def id_column(spread: Spread) -> pa.Array:
            made = self._column(unpack_seqs(packed)[0])
            return pc.coalesce(spread.unfolded(own, pa.string()), made) if any(own) else made

        return Unpacked(verbs, states, workers, attempts, types, details, id_column)

    def snapshot(self, work: Callable[[Any], R]) -> tuple[int, R]:
        with self.engine.snapshot() as db:
            return int(db.value("select_journal_end")), work(db)

    def walk(self, wanted: Numbers, *, bodies: bool) -> Iterator[pa.RecordBatch]:
        """One transaction per batch."""
        (statement,) = statements()["snapshot_messages"]
        first, last = int(wanted[0]), int(wanted[-1])
        while first <= last:
            with _no_collection():
                with self.engine.snapshot() as db:
                    rows = _bounded(db.execute(statement.sql, (first, last, bodies)))
                if not rows:
                    return
                columns = zip(*rows, strict=True)
                batch = pa.record_batch(
                    [pa.array(column, kind) for column, kind in zip(columns, _FIELDS.values(), strict=True)],
                    names=list(_FIELDS),
                )
            first = rows[-1][0] + 1
            yield batch


def _bounded(cursor: Any) -> list[Any]:
    """Rows until their bodies, the last column, reach the size of a batch."""
    rows: list[Any] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += len(row[-1])
        if size > BYTES:
            break
    return rows


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Garbage collection off: searching thousands of rows for cycles, which they do not have, takes a third of the
    time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
