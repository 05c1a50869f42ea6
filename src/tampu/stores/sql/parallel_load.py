"""Runs several steps of a job at once on PostgreSQL, each on its own connection, but commits them in order.

A step begins after the one before it has begun, so its numbers are greater. Then they write their rows in parallel, by
COPY. A step writes the journal and the progress of the job, and commits, after the one before it has committed. So
nobody sees a step without those before it, and a job that dies has stored its first steps and nothing of the others.

Only simple loads run in parallel. A step that takes locks others wait for (a new queue, a limit, keys, groups) could
deadlock with a later step, so it runs alone.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import psycopg

from tampu.engines.encoding import READY
from tampu.engines.load import check
from tampu.engines.port import Load
from tampu.engines.postgres import PostgresEngine, connect
from tampu.engines.postgres.database import Db, statements
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs
from tampu.engines.sql.verbs import documents
from tampu.engines.sql.verbs import load as sql_load
from tampu.model.errors import TampuError, Unavailable
from tampu.stores.arrow.numbers import Numbers
from tampu.stores.port import Run, Step, one_by_one
from tampu.stores.sql import copy_format

PARALLEL = 3
"""Steps at the same time: two keep the server's processors busy while a third waits for its commit."""


class _Begun(msgspec.Struct):
    """A step whose transaction is open."""

    step: Step
    db: Db
    commit: Commit
    loads: list[tuple[Load, int, list[int]]]
    """(load, number of its queue, numbers for its messages)"""


class ParallelLoad:
    """The parallel steps of one job. Closes its connections when the steps are done or abandoned."""

    def __init__(self, engine: PostgresEngine, together: Run) -> None:
        self._engine = engine
        self._together = together
        self._texts = statements(engine.place.schema)
        self._idle: list[Db] = []
        self._abandoned = False
        self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="tampu-load")
        self._running: deque[Future[tuple[list[Any], Commit]]] = deque()

    def run(self, steps: Iterable[Step], version: int) -> Generator[list[Any], None, None]:
        previous: Future[tuple[list[Any], Commit]] | None = None
        pending = iter(steps)
        try:
            while True:
                try:
                    step = next(pending, None)
                    yield from self._wait_until(PARALLEL - 1)
                    begun = None if step is None else self._begin(step)
                except TampuError:
                    yield from self._wait_until(0)  # steps that have begun still commit
                    raise
                if begun is not None:
                    previous = self._pool.submit(self._run_step, begun, version if previous is None else previous)
                    self._running.append(previous)
                    continue
                if previous is not None:
                    yield from self._wait_until(0)
                    version, previous = previous.result()[0][-1], None
                if step is None:
                    return
                for replies in one_by_one(self._together, [step], version):
                    version = replies[-1]
                    yield replies
        finally:
            self._abandoned = True
            self._pool.shutdown()
            for db in self._idle:
                db.close()

    def _wait_until(self, left: int) -> Iterator[list[Any]]:
        """Wait until at most ``left`` steps are running."""
        while len(self._running) > left:
            replies, commit = self._running.popleft().result()
            self._engine.announce(commit)
            yield replies

    def _begin(self, step: Step) -> _Begun | None:
        """Open a transaction with numbers for the step; None if it must run alone."""
        loads = [call for call in step.calls if isinstance(call, Load) and not call.max_depth]
        if len(loads) < len(step.calls):
            return None
        for call in loads:
            check(call)
        engine = self._engine
        db = self._idle.pop() if self._idle else self._connect()
        with self._closing(db), db.together():
            now, block, *_ = db.begin(engine.fake_now(), numbers=True, due=False, synced=True)()
            commit = Commit(db, engine.registry, now, block)
            queues = [engine.registry.number(db, call.tenant, call.queue) for call in loads]
            known = [q for q in queues if q is not None]
            if len(known) == len(queues):
                # Lock here, in order: if a later step got the lock first, the earlier one would wait for it forever.
                db.send(
                    "acquire_shared_locks",
                    Blobs(sql_load.id_prefix_lock(call) for call in loads if not call.position_in_same_commit),
                )
                numbers = [list(commit.numbers(len(call.numbers))) for call in loads]
                return _Begun(step, db, commit, list(zip(loads, known, numbers, strict=True)))
            db.command(b"ROLLBACK")
        self._idle.append(db)
        return None

    def _connect(self) -> Db:
        try:
            return connect.connect(self._engine.place)
        except psycopg.Error as error:
            raise self._engine.driver.translate(error) from error

    @contextlib.contextmanager
    def _closing(self, db: Db) -> Iterator[None]:
        """On an error, close the connection (which rolls back) and translate the error."""
        try:
            yield
        except BaseException as error:
            db.close()
            if isinstance(error, psycopg.Error):
                raise self._engine.driver.translate(error) from error
            raise

    def _run_step(self, begun: _Begun, previous: Future[tuple[list[Any], Commit]] | int) -> tuple[list[Any], Commit]:
        """Store the messages. After the step before has committed, write the rest of this commit."""
        db, commit = begun.db, begun.commit
        with self._closing(db):
            with db.together():
                known = [
                    set() if call.position_in_same_commit else sql_load.known_numbers(db, call)
                    for call, _, _ in begun.loads
                ]
            replies: list[Any] = [
                self._load(commit, *load, known=there) for load, there in zip(begun.loads, known, strict=True)
            ]
            version = previous if isinstance(previous, int) else previous.result()[0][-1]
            if self._abandoned:
                raise Unavailable("the job was abandoned", hint="run it again")
            with db.together():
                (noted,) = documents.put(commit, [begun.step.note(version)])
                if isinstance(noted, TampuError):
                    raise noted
                commit.finish()
                db.command(b"COMMIT")
        self._idle.append(db)
        return [*replies, noted], commit

    def _load(self, commit: Commit, call: Load, q: int, seqs: list[int], *, known: set[int]) -> int:
        """Store the messages that are new. Returns how many."""
        numbers: Numbers = np.asarray(call.numbers, np.int64)
        types = list(call.types)
        chosen: Numbers | None = None
        if known:
            chosen = np.flatnonzero(~np.isin(numbers, np.fromiter(known, np.int64)))
            numbers, seqs, types = numbers[chosen], seqs[: len(chosen)], [types[i] for i in chosen.tolist()]
        if seqs:
            own, places = (
                None if call.position_in_same_commit else copy_format.ids(call.id_prefix, numbers),
                np.asarray(seqs, np.int64),
            )
            rows = copy_format.messages(call, chosen, q, commit.now, commit.ahead, places, own)
            self._copy(commit.db, "copy_messages", rows)
            self._copy(commit.db, "copy_ready", copy_format.ready(q, places))
            record = commit.record("publish", q, READY)
            if own is not None:
                record.add_own(len(seqs), copy_format.own_ids(own, len(record.seqs)))
            sql_load.record_stored(commit, record, q, seqs, types)
        return len(seqs)

    def _copy(self, db: Any, name: str, rows: memoryview) -> None:
        with db.connection.cursor() as cursor, cursor.copy(self._texts[name]) as copy:
            copy.write(copy_format.BEGINNING)
            copy.write(rows)
            copy.write(copy_format.END)
