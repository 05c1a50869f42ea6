"""PostgreSQL as an Arrow store. Driver and executors each connect to it. Rows come by COPY, whole columns at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import psycopg

from tampu.engines.port import Call
from tampu.engines.postgres import PostgresEngine, connect, migrations
from tampu.engines.sql import journal
from tampu.engines.sql.db import Db, ServerDb
from tampu.model.errors import NotFound
from tampu.stores.engine_store import without_errors
from tampu.stores.port import Step
from tampu.stores.sql.parallel_load import ParallelLoad
from tampu.stores.sql.row_ranges import RowRanges
from tampu.stores.sql.rows import Walk
from tampu.stores.sql.store import SqlStore

R = TypeVar("R")


class PostgresStore(SqlStore[PostgresEngine]):
    def snapshot(self, work: Callable[[Db], R]) -> tuple[int, R]:
        readers = self.engine.readers
        readers.ask(journal.catch_up)  # number most of it first, so that others wait for the lock only briefly

        def asked(db: Db) -> tuple[int, R]:
            with readers.another() as other:
                latest = _numbered(db, other)
                with other.together():
                    found = work(other)
                    other.say(b"COMMIT")
            return latest, found

        return readers.ask(asked)

    def aside(self, calls: Sequence[Call]) -> list[Any]:
        with self.engine.transaction(None) as work:
            work.execute("SET LOCAL synchronous_commit TO off", None)
            return [without_errors(work.run([call]))[0] for call in calls]

    def in_turn(self, steps: Iterable[Step], version: int) -> Generator[list[Any], None, None]:
        return ParallelLoad(self.engine, self.together).run(steps, version)

    @contextlib.contextmanager
    def walking(self) -> Iterator[Walk]:
        yield RowRanges(self.engine.readers, self.engine.place.schema).messages


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


def _numbered(db: Db, other: ServerDb) -> int:
    """Number the journal, and leave ``other`` in a transaction that sees exactly what was numbered. Returns the last
    offset.

    Uses two sessions, so that other processes can number the journal while the plan is made.
    """
    with db.together():
        db.say(b"BEGIN ISOLATION LEVEL REPEATABLE READ")
        db.send("snapshot_lock")
        while journal.number(db) == journal.STEP:
            pass
        (latest,) = db.row("select_journal_end")
        (name,) = db.row("snapshot_export")
        with other.together():
            other.begin_reading()
            other.say(b"SET TRANSACTION SNAPSHOT '%s'" % name.encode())
        db.say(b"COMMIT")
    return int(latest)
