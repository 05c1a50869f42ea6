"""The embedded engine: opens the file, runs commits, answers reads. What each verb does is in its own file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tampu.engines import port
from tampu.engines.dispatch import carry_out
from tampu.engines.sqlite import checks, documents, files, forks, journal, read, sweep, transfer, unit_names
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.peers import Peers
from tampu.engines.sqlite.queue_registry import QueueRegistry, find
from tampu.engines.sqlite.read_pool import ReadPool
from tampu.engines.sqlite.user_transaction import Transaction, plain_rows
from tampu.engines.sqlite.verbs import VERBS
from tampu.engines.transfer import RequestPage, SnapshotPage
from tampu.engines.units import Refused, run_apart
from tampu.model.errors import InvalidConfig, TampuError, Unavailable
from tampu.model.journal import JournalPage, Position
from tampu.model.message import Message, State
from tampu.model.times import SECOND, Clock, SystemClock

_SOON = SECOND
"""Keepers look by themselves this often; only what is due sooner needs the bell."""
_GROW_AFTER = 32
_LOOK_AFTER = 256
"""Commits after which a process without keepers looks whether its file is still there."""
_LOG_BYTES = files.CHECKPOINT_PAGES * 4200
_ZEROS = bytes(1 << 20)


class SqliteEngine:
    """See `tampu.engines.port.Engine` for the contract."""

    capabilities = frozenset(
        {"transaction", "group_order", "load", "batch_id", "hand_over", "one_writer", "atomic:isolated"}
    )

    def __init__(
        self,
        path: str = files.MEMORY,
        *,
        clock: Clock | None = None,
        durability: str = "full",
        adopt: bool = False,
        connect: files.Connect = sqlite3.connect,
    ) -> None:
        if sqlite3.sqlite_version_info < files.OLDEST_SQLITE:
            raise Unavailable(
                f"SQLite {sqlite3.sqlite_version} is too old", hint="tampu needs 3.35 or newer; upgrade Python"
            )
        if durability not in ("full", "process"):
            raise InvalidConfig(
                f"no such durability: {durability}",
                field="durability",
                hint="full (survives loss of power) or process (survives kill -9 only)",
            )
        # Links resolved, as SQLite does: whoever opens the file by another name must find the same companions.
        self.path = path if path == files.MEMORY else os.path.realpath(path)
        self.durability = "memory" if path == files.MEMORY else durability
        self._clock = clock or SystemClock()
        self._connect = connect
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._listener: port.Listener | None = None
        self._writer: sqlite3.Connection | None = None
        self._readers = ReadPool(self._new_connection)
        self._closed = False
        self._gone = False
        self._commits = 0
        self._companions: Peers | None = None
        self._identity: tuple[int, int] | None = None
        forks.refuse_inherited(self.path)
        with contextlib.ExitStack() as undo:
            try:
                files.inspect(self.path, adopt=adopt)
                if self.path != files.MEMORY:
                    self._companions = Peers(self.path, files.BUSY_SECONDS)
                    undo.callback(self._companions.close)
                with self._gate():
                    undo.callback(self._db.close)
                    self.schema = files.migrate(self._db, self.path)
                tail = self._db.execute("SELECT value FROM tampu_meta WHERE name = 'tail'").fetchone()[0]
                self._identity = files.identity(self.path)
            except OSError as error:
                raise Unavailable(f"{self.path}: {error.strerror}") from error
            except sqlite3.Error as error:
                raise files.translate(error, self.path) from error
            undo.pop_all()
        self.registry = QueueRegistry(tail)
        if self.path != files.MEMORY:
            forks.watch(self)

    def now(self) -> int:
        return self._clock.now()

    # -- connections

    @property
    def _db(self) -> sqlite3.Connection:
        """The one that writes; connected again when it was closed for a fork."""
        if self._writer is None:
            self._writer = self._new_connection()
            self._commits = 0
        return self._writer

    def _new_connection(self) -> sqlite3.Connection:
        self._look_for_file()
        self._check_there()  # to connect would make it anew
        return files.connect(self.path, self.durability, self._connect)

    def before_fork(self, give_up: float) -> bool:
        """See `forks`. A thread that forks inside its own transaction, or cannot wait for another's, closes nothing."""
        companions = self._companions
        if companions is None or not self._lock.acquire(timeout=max(0.0, give_up - time.monotonic())):
            return False
        if not companions.entered:
            self._readers.before_fork(give_up)
            with (
                contextlib.suppress(TampuError, OSError, sqlite3.Error),
                companions.gate(max(0.0, give_up - time.monotonic())),
            ):
                self._readers.close_idle()
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
        return True

    def go_on(self) -> None:
        self._readers.go_on()
        self._lock.release()

    def after_fork_child(self) -> None:
        if self._writer is not None:
            forks.keep_for_ever(self._writer)

    # -- writing

    def run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        with self._lock:
            self._check_usable()
            try:
                replies, commit = self._commit(calls)
            except Refused as refused:
                return run_apart(self.run, self._alone, calls, refused)
            except Exception as error:
                # One call that breaks must not take the others along: each alone, and only the broken one fails.
                if len(calls) > 1 and not isinstance(error, TampuError) and not _of_the_store(error):
                    return [self._alone(call) for call in calls]
                if isinstance(error, sqlite3.Error):
                    self._look_for_file()
                    self._check_usable()  # what SQLite says of a file that was replaced would mislead
                    raise files.translate(error, self.path) from error
                raise
            self._commits += 1
            if self._commits % _LOOK_AFTER == 0:
                self._look_for_file()
            if self._commits == _GROW_AFTER:
                # Only a matter of speed: the commit stands, whatever comes of it.
                with contextlib.suppress(OSError, sqlite3.Error, TampuError):
                    self._grow_log()
        self._announce(commit)
        return replies

    def _alone(self, call: port.Call) -> Any | TampuError:
        try:
            return self.run([call])[0]
        except TampuError as error:
            return error
        except Exception as error:
            failed = TampuError(f"{type(call).__name__.lower()} failed: {error!r}", hint="this is a fault of tampu's")
            failed.__cause__ = error
            return failed

    def _commit(self, calls: Sequence[port.Call]) -> tuple[list[Any], Commit]:
        with self._gate():
            db, commit = self._db, None
            try:
                db.execute("BEGIN IMMEDIATE")  # inside: an interrupt may come when it has just begun
                commit = Commit(db, self.registry, self._clock.now())
                replies = carry_out(VERBS, commit, calls, unit_names)
                commit.finish()
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                if commit is not None:
                    commit.forget_new_queues()
                raise
        return replies, commit

    @contextlib.contextmanager
    def transaction(self, connection: sqlite3.Connection | None) -> Iterator[Transaction]:
        """Calls and the user's own writes in one commit; on the engine's connection, or the user's."""
        if connection is not None:
            yield from self._joined(connection)
            return
        self.check_process()  # before the lock: a thread of the parent may have had it
        with self._lock:
            self._check_usable()
            try:
                with self._gate():
                    db = self._db
                    work = Transaction(self, db)
                    try:
                        db.execute("BEGIN IMMEDIATE")
                        yield work
                        self.check_process()
                        if not db.in_transaction:
                            raise Unavailable("the transaction was ended inside", hint="leave commit to the with block")
                        db.execute("COMMIT")
                    except BaseException:
                        if self._ours and db.in_transaction:
                            db.execute("ROLLBACK")
                        raise
            except sqlite3.Error as error:
                raise files.translate(error, self.path) from error
        for commit in work.commits:
            self._announce(commit)

    def _joined(self, db: sqlite3.Connection) -> Iterator[Transaction]:
        """In the user's transaction: theirs to commit if they began it, ours if not."""
        self._check_usable()
        if not isinstance(db, sqlite3.Connection) or not self._is_ours(db):
            raise InvalidConfig("the connection is to another file", field="connection", hint=f"connect to {self.path}")
        begun = db.in_transaction
        work = Transaction(self, db)
        try:
            if not begun:
                db.execute("BEGIN IMMEDIATE")
            yield work
            self.check_process()
            if not begun:
                db.commit()
        except BaseException:
            if not begun and self._ours and db.in_transaction:
                db.rollback()
            raise
        for commit in work.commits:
            self._announce(commit)

    def _is_ours(self, db: sqlite3.Connection) -> bool:
        with plain_rows(db):
            return self.path in {os.path.realpath(row[2]) for row in db.execute("PRAGMA database_list") if row[2]}

    def _announce(self, commit: Commit) -> None:
        """Tell who waits, in this process and the others."""
        soon = commit.due is not None and commit.due < commit.now + _SOON
        if self._companions is not None and (commit.ready or soon):
            self._companions.notify()
        if self._listener is not None:
            if commit.due is not None:
                self._listener.due(commit.due)
            if commit.ready:
                names = commit.registry.names
                self._listener.ready({names[q]: n for q, n in commit.ready.items() if q in names})
            if commit.leases_expired:
                names = commit.registry.names
                self._listener.leases_expired(
                    {names[q]: counts for q, counts in commit.leases_expired.items() if q in names}
                )

    def _gate(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._companions is None else self._companions.gate()

    def _grow_log(self) -> None:
        """Once it is clear that this process writes a lot: give the log its full size, so that commits overwrite
        instead of extending the file (an fsync that must not write file size is a third cheaper)."""
        if self.path == files.MEMORY:
            return
        with self._gate():
            # Nobody may extend the log meanwhile: the gate keeps our own processes out, the write lock everybody else.
            try:
                self._db.execute("BEGIN IMMEDIATE")
                with Path(f"{self.path}-wal").open("r+b") as log:
                    missing = _LOG_BYTES - log.seek(0, os.SEEK_END)
                    while missing > 0:
                        missing -= log.write(_ZEROS[: min(missing, len(_ZEROS))])
                    log.flush()
                    os.fsync(log.fileno())
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable("this queue was closed", hint="open it again")
        self._check_there()
        self.check_process()

    def _check_there(self) -> None:
        if self._gone:
            raise Unavailable(f"{self.path} {files.GONE}", hint=files.GONE_HINT)

    def _look_for_file(self) -> None:
        """Is the file still there by its name? What is written to one that was removed is gone with this process."""
        self._gone = self._gone or (self._identity is not None and files.identity(self.path) != self._identity)

    @property
    def _ours(self) -> bool:
        """Is this the process that opened the file, not one forked from it?"""
        return os.getpid() == self._pid

    def check_process(self) -> None:
        if not self._ours:
            raise Unavailable("this store was opened before a fork", hint="open it in the child process")

    # -- reading

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection that reads the file as it is at one moment."""
        self._check_usable()
        try:
            if self.path == files.MEMORY:
                with self._lock:
                    yield self._db
                return
            with self._readers.snapshot() as db:
                yield db
        except sqlite3.Error as error:
            self._check_usable()  # it may have been closed meanwhile
            raise files.translate(error, self.path) from error

    def get(self, tenant: str, id: str) -> Message | None:
        with self.snapshot() as db:
            place = find(db, self.registry, tenant, id)
            return None if place is None else read.load(db, self.registry, place[0], whole=True, now=self.now())

    def page(
        self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
    ) -> port.Page | None:
        with self.snapshot() as db:
            return read.page(db, self.registry, tenant, queue, state, after, limit)

    def stats(self, tenant: str, queue: str | None) -> list[port.QueueStats]:
        with self.snapshot() as db:
            return read.stats(db, self.registry, tenant, queue, self.now())

    def queues(self) -> list[tuple[str, str]]:
        with self.snapshot() as db:
            return db.execute("SELECT tenant, name FROM tampu_queue ORDER BY tenant, name").fetchall()

    def journal(self, after: Position | None, limit: int, tenant: str | None) -> JournalPage:
        with self.snapshot() as db:
            return journal.read(db, lambda q: self.registry.name(db, q), self.registry.id, after, limit, tenant)

    def document(self, kind: str, tenant: str, name: str) -> port.Document | None:
        with self.snapshot() as db:
            return documents.get(db, kind, tenant, name)

    def documents(self, kind: str, tenant: str) -> list[port.Document]:
        with self.snapshot() as db:
            return documents.list_all(db, kind, tenant)

    def all_documents(self) -> list[port.Document]:
        with self.snapshot() as db:
            return documents.every(db)

    def kept(
        self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
    ) -> SnapshotPage | None:
        with self.snapshot() as db:
            return transfer.page(db, self.registry, tenant, queue, state, after, limit, self.now())

    def requests(self, tenant: str, after: tuple[Any, ...] | None, limit: int) -> RequestPage:
        with self.snapshot() as db:
            return transfer.requests(db, self.registry, tenant, after, limit, self.now())

    def revision(self) -> int:
        with self.snapshot() as db:
            return read.revision(db)

    def next_due(self) -> int | None:
        with self.snapshot() as db:
            return sweep.next_due(db)

    def poll_status(self, queues: Sequence[tuple[str, str]]) -> port.PollStatus:
        self._look_for_file()
        with self.snapshot() as db:
            ready = {queue: read.ready_count(db, self.registry, *queue) for queue in queues}
            return port.PollStatus(self.now(), sweep.next_due(db), read.revision(db), True, ready)

    def check(self) -> list[tuple[str, str, str]]:
        self._look_for_file()
        if self._gone:
            return [("file", "bad", f"{files.GONE}: {files.GONE_HINT}")]
        with self.snapshot() as db:
            return checks.check(db, self.path, self.durability, self.now())

    # -- company

    def listen(self, listener: port.Listener) -> None:
        self._listener = listener
        if self._companions is not None:
            try:
                self._companions.listen(listener.on_remote_change)
            except OSError as error:
                raise Unavailable(f"{self.path}: {error.strerror}") from error

    def lead(self) -> bool:
        return self._companions is None or self._companions.lead()

    def close(self) -> None:
        if self._closed or not self._ours:
            return
        with self._lock:
            self._closed = True
            forks.forget(self)
            try:
                with self._gate():
                    self._readers.close()
                    if self._writer is not None:
                        self._writer.close()
            finally:
                if self._companions is not None:
                    self._companions.close()


def _of_the_store(error: Exception) -> bool:
    """Does it concern all calls of a commit? What is too big, or breaks a rule of the tables, is of one of them."""
    return isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.DataError | sqlite3.IntegrityError)
