"""The steps of a job on PostgreSQL, several at once: each on a connection of its own, and yet in one order.

A step begins when the one before it has begun, so its numbers are greater. Then they write their rows beside each
other, by COPY. A step tells the journal, notes how far the job has come and commits when the one before it has
committed: nobody sees a step without those before it, and a job that dies anywhere has stored its first steps and
nothing of the others.

Only plain loads go so. What takes locks that others wait for (a queue that is new, or has a limit, keys, groups) would
wait for a later step that waits for it; such a step goes alone.
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
from tampu.engines.sql import documents
from tampu.engines.sql import load as sql_load
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs
from tampu.model.errors import TampuError, Unavailable
from tampu.stores.arrow.bulk_ids import Numbers
from tampu.stores.port import Step
from tampu.stores.sql import copy_format
from tampu.stores.steps import Together, one_by_one

LANES = 3
"""Steps under way: two keep the server's processors busy while a third waits for its commit."""


class _Begun(msgspec.Struct):
    """A step whose transaction is open."""

    step: Step
    db: Db
    commit: Commit
    loads: list[tuple[Load, int, list[int]]]
    """Each with the number of its queue, and numbers for all its messages."""


class ParallelLoad:
    """Of one job. Its connections are closed when the steps are through, or given up."""

    def __init__(self, engine: PostgresEngine, together: Together) -> None:
        self._engine = engine
        self._together = together
        self._texts = statements(engine.place.schema)
        self._idle: list[Db] = []
        self._given_up = False
        self._pool = ThreadPoolExecutor(LANES, thread_name_prefix="tampu-pouring")
        self._under_way: deque[Future[tuple[list[Any], Commit]]] = deque()

    def run(self, steps: Iterable[Step], version: int) -> Generator[list[Any], None, None]:
        before: Future[tuple[list[Any], Commit]] | None = None
        coming = iter(steps)
        try:
            while True:
                try:
                    step = next(coming, None)
                    yield from self._through(LANES - 1)
                    begun = None if step is None else self._begin(step)
                except TampuError:
                    yield from self._through(0)  # what has begun is none the worse for it
                    raise
                if begun is not None:
                    before = self._pool.submit(self._carry_out, begun, version if before is None else before)
                    self._under_way.append(before)
                    continue
                if before is not None:
                    yield from self._through(0)
                    version, before = before.result()[0][-1], None
                if step is None:
                    return
                for replies in one_by_one(self._together, [step], version):
                    version = replies[-1]
                    yield replies
        finally:
            self._given_up = True
            self._pool.shutdown()
            for db in self._idle:
                db.close()

    def _through(self, left: int) -> Iterator[list[Any]]:
        """Wait until no more than so many are under way."""
        while len(self._under_way) > left:
            replies, commit = self._under_way.popleft().result()
            self._engine.announce(commit)
            yield replies

    def _begin(self, step: Step) -> _Begun | None:
        """Open a transaction, with the step's numbers; None: it must go alone."""
        loads = [call for call in step.calls if isinstance(call, Load) and not call.max_depth]
        if len(loads) < len(step.calls):
            return None
        for call in loads:
            check(call)
        engine = self._engine
        db = self._idle.pop() if self._idle else self._connect()
        with self._closing(db), db.together():
            now, block, *_ = db.begin(engine.fake_now(), numbers=True, due=False)()
            commit = Commit(db, engine.registry, now, block)
            queues = [engine.registry.number(db, call.tenant, call.queue) for call in loads]
            known = [q for q in queues if q is not None]
            if len(known) == len(queues):
                # Here and not later: a step that came second could have the lock, and the first wait for it in vain.
                db.send(
                    "acquire_shared_locks",
                    Blobs(sql_load.id_prefix_lock(call) for call in loads if not call.position_in_same_commit),
                )
                numbers = [commit.numbers(len(call.numbers)) for call in loads]
                return _Begun(step, db, commit, list(zip(loads, known, numbers, strict=True)))
            db.say(b"ROLLBACK")
        self._idle.append(db)
        return None

    def _connect(self) -> Db:
        try:
            return connect.connect(self._engine.place)
        except psycopg.Error as error:
            raise self._engine.driver.translate(error) from error

    @contextlib.contextmanager
    def _closing(self, db: Db) -> Iterator[None]:
        """What goes wrong inside undoes the transaction, and says what it means."""
        try:
            yield
        except BaseException as error:
            db.close()
            if isinstance(error, psycopg.Error):
                raise self._engine.driver.translate(error) from error
            raise

    def _carry_out(self, begun: _Begun, before: Future[tuple[list[Any], Commit]] | int) -> tuple[list[Any], Commit]:
        """Store the messages; then, when the step before has committed, all that must be in the same commit."""
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
            version = before if isinstance(before, int) else before.result()[0][-1]
            if self._given_up:
                raise Unavailable("the job was given up", hint="run it again")
            with db.together():
                (noted,) = documents.put(commit, [begun.step.note(version)])
                if isinstance(noted, TampuError):
                    raise noted
                commit.finish()
                db.say(b"COMMIT")
        self._idle.append(db)
        return [*replies, noted], commit

    def _load(self, commit: Commit, call: Load, q: int, seqs: list[int], *, known: set[int]) -> int:
        """Store what is not there yet; how many that was."""
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
