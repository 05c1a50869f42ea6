"""PostgreSQL as an Arrow store. Driver and executors each connect to it. Rows come by COPY, whole columns at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

import psycopg
import pyarrow as pa

from tampu.engines.port import Call
from tampu.engines.postgres import PostgresEngine, connect, migrations
from tampu.engines.sql import journal
from tampu.engines.sql.db import Db, ServerDb
from tampu.model.errors import NotFound
from tampu.stores.arrow.numbers import Numbers
from tampu.stores.engine_store import without_errors
from tampu.stores.port import Step
from tampu.stores.sql.parallel_load import ParallelLoad
from tampu.stores.sql.row_ranges import RowRanges
from tampu.stores.sql.store import ServerStore


class PostgresStore(ServerStore[PostgresEngine]):
    def hold(self, db: Db, other: ServerDb) -> int:
        """Uses two sessions, so that other processes can number the journal while the plan is made."""
        with db.together():
            db.command(b"BEGIN ISOLATION LEVEL REPEATABLE READ")
            db.send("snapshot_lock")
            while journal.number(db) == journal.STEP:
                pass
            (latest,) = db.row("select_journal_end")
            (name,) = db.row("snapshot_export")
            with other.together():
                other.begin_reading()
                other.command(b"SET TRANSACTION SNAPSHOT '%s'" % name.encode())
            db.command(b"COMMIT")
        return int(latest)

    def aside(self, calls: Sequence[Call]) -> list[Any]:
        with self.engine.transaction(None) as work:
            work.execute("SET LOCAL synchronous_commit TO off", None)
            return [without_errors(work.run([call]))[0] for call in calls]

    def in_turn(self, steps: Iterable[Step], version: int) -> Generator[list[Any], None, None]:
        return ParallelLoad(self.engine, self.together).run(steps, version)

    def walk(self, wanted: Numbers, *, bodies: bool) -> Iterator[pa.RecordBatch]:
        return RowRanges(self.engine.readers, self.engine.place.schema).messages(wanted, bodies=bodies)


def check_there(url: str) -> None:
    """Raise if the schema does not exist."""
    place = connect.target(url, None)
    try:
        with psycopg.connect(place.conninfo) as connection:
            there = migrations.version_of(connection, place.schema)
    except psycopg.Error as error:
        raise connect.translate(error, place) from error
    if not there:
        raise NotFound(
            f"{place.shown} has no schema {place.schema}",
            field="url",
            hint="name the right schema with ?schema=; tampu migrate or a publish creates a new one",
        )
