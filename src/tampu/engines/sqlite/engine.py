"""The embedded engine: opens the file, runs commits and reads. What each verb does is in a file of its own."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tampu.engines import port
from tampu.engines.rules import only_extends
from tampu.engines.sql.base import BaseEngine
from tampu.engines.sql.commit import carry_out
from tampu.engines.sql.rules import unit_names
from tampu.engines.sql.user_transaction import Transaction, own
from tampu.engines.sql.verbs.table import VERBS, each
from tampu.engines.sqlite import checks, files, forks
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.database import Db, plain_rows
from tampu.engines.sqlite.ids import Ids, SqliteRegistry
from tampu.engines.sqlite.peers import Peers
from tampu.engines.sqlite.read_pool import ReadPool
from tampu.engines.sqlite.reserve import Reserve, full, stores_more
from tampu.engines.sqlite.verbs import claim, load, publish, settle
from tampu.engines.units import Refused, run_apart
from tampu.model.errors import InvalidConfig, TampuError, Unavailable
from tampu.model.times import Clock

R = TypeVar("R")
_GROW_AFTER = 32
_CHECK_FILE_AFTER = 256
_CHECK_SPACE_SECONDS = 0.1
"""How soon this process notices that another has spent the reserve (see `reserve`)."""
"""Commits after which a process without maintenance checks whether its file still exists."""
_LOG_BYTES = files.CHECKPOINT_PAGES * 4200
_ZEROS = bytes(1 << 20)


class SqliteEngine(BaseEngine):
    """See `tampu.engines.port.Engine` for the contract."""

    capabilities = frozenset(
        {"transaction", "group_order", "load", "batch_id", "hand_over", "one_writer", "atomic:isolated"}
    )

    verbs = {  # noqa: RUF012 - not changed
        **VERBS,
        port.Publish: publish.publish,
        port.Load: each(load.load),
        port.Settle: settle.settle,
        port.Claim: claim.claim,
    }

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
                hint="use full (survives power loss) or process (survives kill -9 only)",
            )
        # Resolve links, as SQLite does: a process that opens the file by another name must find the same lock files.
        self.path = path if path == files.MEMORY else os.path.realpath(path)
        self.durability = "memory" if path == files.MEMORY else durability
        self._clock = clock
        self._connect = connect
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._writer: Db | None = None
        self.driver = _Errors(self.path)
        self._readers = ReadPool(self._new_connection)
        self.readers = _Readers(self.snapshot)
        self._closed = False
        self._gone = False
        self._commits = 0
        self._peers: Peers | None = None
        self._reserve = Reserve(self.path, _LOG_BYTES, self._free_pages)
        self._check_space_at = 0.0
        self._identity: tuple[int, int] | None = None
        forks.refuse_inherited(self.path)
        with contextlib.ExitStack() as undo:
            try:
                files.inspect(self.path, adopt=adopt)
                if self.path != files.MEMORY:
                    self._wakeup = self._peers = Peers(self.path, files.BUSY_SECONDS)
                    undo.callback(self._peers.close)
                with self._write_lock():
                    undo.callback(self._db.close)
                    self.schema = files.migrate(self._db.connection, self.path)
                meta = dict(self._db.rows("select_meta"))
                self._identity = files.identity(self.path)
            except OSError as error:
                raise Unavailable(f"{self.path}: {error.strerror}") from error
            except sqlite3.Error as error:
                raise files.translate(error, self.path) from error
            undo.pop_all()
        self.registry: SqliteRegistry = SqliteRegistry(Ids(meta["tail"], bytes.fromhex(meta["secret"]), meta["since"]))
        if self.path != files.MEMORY:
            forks.watch(self)

    def now(self) -> int:
        return time.time_ns() // 1000 if self._clock is None else self._clock.now()

    # -- connections

    @property
    def _db(self) -> Db:
        """The connection that writes. Opened again after it was closed for a fork."""
        if self._writer is None:
            self._writer = self._new_connection()
            self._commits = 0
        return self._writer

    def _new_connection(self) -> Db:
        self._check_file()
        self._check_there()  # connecting would create a new file
        return Db(files.connect(self.path, self.durability, self._connect))

    def before_fork(self, give_up: float) -> bool:
        """See `forks`. Closes nothing if this thread is in a transaction, or another's does not end in time."""
        peers = self._peers
        if peers is None or not self._lock.acquire(timeout=max(0.0, give_up - time.monotonic())):
            return False
        if not peers.entered:
            self._readers.before_fork(give_up)
            with (
                contextlib.suppress(TampuError, OSError, sqlite3.Error),
                peers.write_lock(max(0.0, give_up - time.monotonic())),
            ):
                self._readers.close_idle()
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
        return True

    def after_fork_parent(self) -> None:
        self._readers.after_fork_parent()
        self._lock.release()

    def after_fork_child(self) -> None:
        if self._writer is not None:
            forks.never_close(self._writer.connection)

    # -- writing

    def run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        with self._lock:
            self._check_usable()
            if time.monotonic() >= self._check_space_at and any(map(stores_more, calls)):
                if self.is_full():
                    return self._run_on_full_disk(calls)
                self._check_space_at = time.monotonic() + _CHECK_SPACE_SECONDS
            try:
                extends = type(calls[0]) is port.Extend and self.durability == "full" and only_extends(calls)
                replies, commit = (self._commit_extensions if extends else self._commit)(calls)
            except Refused as refused:
                return run_apart(self.run, self._run_one, calls, refused)
            except Exception as error:
                # One broken call must not fail the others: run each alone.
                if len(calls) > 1 and not isinstance(error, TampuError) and not _concerns_all(error):
                    return [self._run_one(call) for call in calls]
                if isinstance(error, sqlite3.Error):
                    removes = not all(map(stores_more, calls))
                    self._check_space_at = 0.0
                    if files.is_full(error) and removes and (self._reserve.spend() or any(map(stores_more, calls))):
                        return self._run_on_full_disk(calls)
                    self._check_file()
                    self._check_usable()  # SQLite's error about a replaced file would mislead
                    raise files.translate(error, self.path) from error
                raise
            self._commits += 1
            if self._commits % _CHECK_FILE_AFTER == 0:
                self._check_file()
            if self._commits == _GROW_AFTER:
                # Only for speed: the commit is done, whether this works or not.
                with contextlib.suppress(OSError, sqlite3.Error, TampuError):
                    self._grow_log()
        commit.announce(self._wakeup, self._listener)
        return replies

    _run = run

    def _run_on_full_disk(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        """Run the calls that need no lasting room, and refuse the others."""
        others = [call for call in calls if not stores_more(call)]
        replies = iter(self.run(others) if others else ())
        return [full() if stores_more(call) else next(replies) for call in calls]

    def is_full(self) -> bool:
        return self.path != files.MEMORY and self._reserve.refuses()

    def _free_pages(self) -> int:
        with self.snapshot() as db:
            (pages,), (size,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_size"))
        return int(pages) * int(size)

    def _commit(self, calls: Sequence[port.Call]) -> tuple[list[Any], Commit]:
        with self._write_lock():
            db, commit = self._db, None
            try:
                db.execute("BEGIN IMMEDIATE")  # inside the try: an interrupt may come right after it
                commit = Commit(db, self.registry, self.now())
                replies = carry_out(self.verbs, commit, calls, unit_names)
                commit.finish()
                db.execute("COMMIT")
            except BaseException:
                db.rollback()
                if commit is not None:
                    commit.forget_new_queues()
                raise
        for fill in commit.deferred:
            fill()
        return replies, commit

    def _commit_extensions(self, calls: Sequence[port.Call]) -> tuple[list[Any], Commit]:
        """A commit that only extends leases does not wait for the disk; the next one that waits covers it."""
        db = self._db
        db.execute("PRAGMA synchronous = NORMAL")
        try:
            return self._commit(calls)
        finally:
            db.execute("PRAGMA synchronous = FULL")

    def begin_joined(self, db: Any) -> Commit:
        """A commit inside the user's open transaction."""
        # Its own registry: the user may still roll back, so nobody knows yet whether new queues will exist.
        return Commit(db, SqliteRegistry(self.registry.id), self.now())

    @contextlib.contextmanager
    def transaction(self, connection: sqlite3.Connection | None) -> Iterator[Transaction]:
        """Calls and the user's own writes in one commit, on the engine's connection or the user's."""
        if connection is not None:
            yield from self._joined(connection)
            return
        self.check_process()  # before the lock: in a forked child it may be locked for ever
        with self._lock:
            self._check_usable()
            try:
                with self._write_lock():
                    db = Db(self._db.connection, check=self.check_process)
                    try:
                        with own(self, db, b"BEGIN IMMEDIATE") as work:
                            yield work
                    except BaseException:
                        if self._ours:
                            db.rollback()
                        raise
            except sqlite3.Error as error:
                raise files.translate(error, self.path) from error
        for commit in work.commits:
            commit.announce(self._wakeup, self._listener)

    def _joined(self, db: sqlite3.Connection) -> Iterator[Transaction]:
        """In the user's transaction. The user commits it if the user began it; else we do."""
        self._check_usable()
        if not isinstance(db, sqlite3.Connection) or not self._is_ours(db):
            raise InvalidConfig("the connection is to another file", field="connection", hint=f"connect to {self.path}")
        begun = db.in_transaction
        work = Transaction(self, Db(db, check=self.check_process), notify_queues=False)
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
            commit.announce(self._wakeup, self._listener)

    def _is_ours(self, db: sqlite3.Connection) -> bool:
        with plain_rows(db):
            names = [file for _, _, file in db.execute("PRAGMA database_list") if file]
            return self.path in map(os.path.realpath, names)

    def _write_lock(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._peers is None else self._peers.write_lock()

    def _grow_log(self) -> None:
        """Give the log its full size, once this process has written a lot. Commits then overwrite the file instead of
        extending it: an fsync that need not write the file size is a third cheaper."""
        if self.path == files.MEMORY:
            return
        with self._write_lock():
            # Nobody may extend the log meanwhile. Our lock stops our own processes, the write lock all others.
            try:
                self._db.execute("BEGIN IMMEDIATE")
                with Path(f"{self.path}-wal").open("r+b") as log:
                    missing = _LOG_BYTES - log.seek(0, os.SEEK_END)
                    while missing > 0:
                        missing -= log.write(_ZEROS[: min(missing, len(_ZEROS))])
                    log.flush()
                    os.fsync(log.fileno())
            finally:
                self._db.rollback()
        self._reserve.make()

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable("this store was closed", hint="open it again")
        self._check_there()
        self.check_process()

    def _check_there(self) -> None:
        if self._gone:
            raise Unavailable(f"{self.path} {files.GONE}", hint=files.GONE_HINT)

    def _check_file(self) -> None:
        """Notice if the file was removed or replaced. What is written to a removed file is lost with this process."""
        self._gone = self._gone or (self._identity is not None and files.identity(self.path) != self._identity)

    @property
    def _ours(self) -> bool:
        """True in the process that opened the file, False in one forked from it."""
        return os.getpid() == self._pid

    def check_process(self) -> None:
        if not self._ours:
            raise Unavailable("this store was opened before a fork", hint="open it in the child process")

    # -- reading

    def fake_now(self) -> int:
        return self.now()

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Db]:
        """A connection that reads one snapshot of the file."""
        self._check_usable()
        try:
            if self.path == files.MEMORY:
                with self._lock:
                    yield self._db
                return
            with self._readers.snapshot() as db:
                yield db
        except sqlite3.Error as error:
            self._check_usable()  # the store may have been closed meanwhile
            raise files.translate(error, self.path) from error

    def poll_status(self, queues: Sequence[tuple[str, str]]) -> port.PollStatus:
        self._check_file()
        with self.snapshot() as db:
            ready = {queue: db.value("count_ready", *queue) for queue in queues}
            due = min((at for at in db.row("select_next_due") if at is not None), default=None)
            return port.PollStatus(self.now(), due, db.value("select_revision"), True, ready)

    def check(self) -> list[tuple[str, str, str]]:
        self._check_file()
        if self._gone:
            return [("file", "bad", f"{files.GONE}: {files.GONE_HINT}")]
        with self.snapshot() as db:
            return checks.check(db, self.path, self.durability, self.now(), is_full=self._reserve.is_spent)

    # -- other processes

    def listen(self, listener: port.Listener) -> None:
        self._listener = listener
        if self._peers is not None:
            try:
                self._peers.listen(listener.on_remote_change)
            except OSError as error:
                raise Unavailable(f"{self.path}: {error.strerror}") from error

    def wake_others(self) -> None:
        if self._peers is not None:
            self._peers.notify()

    def lead(self) -> bool:
        return self._peers is None or self._peers.lead()

    def close(self) -> None:
        if self._closed or not self._ours:
            return
        with self._lock:
            self._closed = True
            forks.forget(self)
            try:
                with self._write_lock():
                    self._readers.close()
                    if self._writer is not None:
                        self._writer.close()
            finally:
                if self._peers is not None:
                    self._peers.close()


class _Readers:
    def __init__(self, snapshot: Callable[[], contextlib.AbstractContextManager[Db]]) -> None:
        self._snapshot = snapshot

    def run(self, work: Callable[[Any], R]) -> R:
        with self._snapshot() as db:
            return work(db)

    run_in_snapshot = run


class _Errors:
    error: type[Exception] = sqlite3.Error

    def __init__(self, path: str) -> None:
        self._path = path

    def translate(self, error: Any) -> TampuError:
        return files.translate(error, self._path)


def _concerns_all(error: Exception) -> bool:
    """True if the error concerns all calls of a commit. A value that is too big, or breaks a constraint, is of one."""
    return isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.DataError | sqlite3.IntegrityError)
