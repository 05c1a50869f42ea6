"""Base class of the engines on database servers: connects, runs commits, answers reads. Each verb has its own file.

One connection writes; the calls of a run are one transaction on it. Reads may come from any thread and use a small
pool. A lost connection is replaced without an error if nothing can have been committed. If it was lost during COMMIT,
the caller gets `Unavailable`: only the caller knows whether it is safe to try again.
"""

from __future__ import annotations

import abc
import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tampu.engines import port
from tampu.engines.merged_claims import run_joined
from tampu.engines.rules import only_extends
from tampu.engines.sql import journal, read
from tampu.engines.sql.base import BaseEngine
from tampu.engines.sql.commit import Commit, SentTooEarly, Wakeup, carry_out
from tampu.engines.sql.db import Db, Driver, ServerDb
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.engines.sql.read_pool import ReadPool
from tampu.engines.sql.rules import unit_names
from tampu.engines.sql.user_transaction import Transaction, own
from tampu.engines.sql.verbs import claim, settle
from tampu.engines.sql.verbs.sweep import pause_sweeps
from tampu.engines.sql.verbs.table import VERBS
from tampu.engines.transfer import Import
from tampu.engines.units import Refused, run_apart
from tampu.model.errors import TampuError, Unavailable
from tampu.model.journal import JournalPage, Position
from tampu.model.times import Clock

_NUMBERED = (port.Publish, port.Load, Import, port.Replay, port.Free, port.Together)
_TIMED = (port.Claim, port.Sweep)
_AHEAD: dict[type[Any], Callable[..., Any]] = {port.Claim: claim.send_ahead, port.Settle: settle.send_ahead}
"""Send the first statement of the only call of a run with the beginning of its commit."""
_TRIES = 8
_PATIENCE_SECONDS = 15.0
_LEADER_SECONDS = 5.0
FOLD_EVERY = 200
"""Commits of this process after which it adds up the rows of the counts."""
_FOLD_MOST = 5_000
_MOST_ITEMS = 100_000
"""Most messages in one commit; larger runs are split into several commits."""


class SqlEngine(BaseEngine):
    """See `tampu.engines.port.Engine` for the contract."""

    driver: Driver
    verbs = VERBS
    capabilities = frozenset({"transaction", "group_order", "load", "atomic:isolated"})
    schema = 0

    def __init__(self, driver: Driver, durability: str, clock: Clock | None) -> None:
        self.driver = driver
        self.durability = durability
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._closed = False
        self._instance = secrets.token_hex(8)
        self._leader_until = 0.0
        self._commits = 0
        self._after_commit: Callable[[Commit], None] | None = None
        """Called after each commit of this engine, before others are notified of it."""
        self.readers: ReadPool = ReadPool(driver, self._check_usable)
        try:
            self._db: ServerDb | None = driver.connect()
            try:
                self.registry = self._open_schema(self._db)
            except BaseException:
                self._db.close()
                raise
        except driver.error as error:
            raise driver.translate(error) from error

    @abc.abstractmethod
    def _open_schema(self, db: ServerDb) -> QueueRegistry:
        """Create, migrate or check the tables on the first connection."""

    @abc.abstractmethod
    def _start_wakeup(self) -> Wakeup:
        """Start listening to other processes; it calls `_on_remote_change`."""

    @abc.abstractmethod
    def join(self, connection: Any) -> contextlib.AbstractContextManager[Transaction]:
        """Run calls inside the user's open transaction."""

    @abc.abstractmethod
    def check(self) -> list[tuple[str, str, str]]: ...

    def now(self) -> int:
        if self._clock is not None:
            return self._clock.now()
        return int(self.readers.run(lambda db: db.value("select_server_time")))

    def fake_now(self) -> int | None:
        return None if self._clock is None else self._clock.now()

    # -- writing

    def run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        with self._lock:
            self._check_usable()
            if len(calls) == 1:
                return self._run(calls)
            replies: list[Any] = []
            for part in _parts(calls):
                if len(part) == len(calls):
                    return run_joined(self._run, part)
                replies.extend(self._run_part(part))
            return replies

    def _run_part(self, part: Sequence[port.Call]) -> list[Any | TampuError]:
        """One of several commits. If it fails, only its own callers get the error: the others may have succeeded."""
        if len(part) == 1:
            return [self._run_one(part[0])]
        try:
            return run_joined(self._run, part)
        except TampuError as error:
            return [error] * len(part)

    def _run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        try:
            replies, commit = self._commit_with_retries(calls)
        except self.driver.error as error:
            raise self.driver.translate(error) from error
        except Refused as refused:
            return run_apart(self._run_part, self._run_one, calls, refused)
        except TampuError:
            raise
        except Exception:
            # A bug in one call must not fail the others: run each in its own commit.
            if len(calls) == 1:
                raise
            return [self._run_one(call) for call in calls]
        commit.committed()
        self.announce(commit)
        return replies

    def _commit_with_retries(self, calls: Sequence[port.Call]) -> tuple[list[Any], Commit]:
        """Commit. Try again after a deadlock, or if the connection was lost before COMMIT was sent."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        pause = threading.Event()
        for attempt in range(_TRIES):
            try:
                return self._commit(self._connected(deadline), calls)
            except Uncertain as error:
                raise Unavailable(
                    f"{self.driver.shown}: the connection was lost during a commit, which may or may not have happened",
                    hint="check before you try again; repeating a settle, or a publish with idempotency_key, is safe",
                ) from error.__cause__
            except self.driver.error as error:
                lost = self._db is None and not self.driver.read_only(error) and time.monotonic() < deadline
                if attempt == _TRIES - 1 or not (lost or self.driver.retriable(error)):
                    raise
                pause.wait(0.01 * secrets.randbelow(1 << attempt))
        raise AssertionError("unreachable")

    def _connected(self, deadline: float) -> ServerDb:
        pause, seconds = threading.Event(), 0.02
        while self._db is None:
            try:
                self._db = self._connect()
            except self.driver.error as error:
                if not self.driver.gone(error) or time.monotonic() + seconds > deadline or self._closed:
                    raise self.driver.translate(error) from error
                pause.wait(seconds)
                seconds = min(seconds * 2, 1.0)
        return self._db

    def _connect(self) -> ServerDb:
        return self.driver.connect()

    def _commit(self, db: ServerDb, calls: Sequence[port.Call], *, ahead: bool = True) -> tuple[list[Any], Commit]:
        commit: Commit | None = None
        committing = False
        try:
            with db.together():
                commit = self._begin(db, calls, ahead=ahead)
                replies = carry_out(VERBS, commit, calls, unit_names)
                commit.finish()
                self._commits += 1
                if self._commits % FOLD_EVERY == 0:
                    db.send("fold_counts", _FOLD_MOST)
                committing = True
                db.command(b"COMMIT")
                db.flush()
                for fill in commit.deferred:
                    fill()
        except BaseException as error:
            if commit is not None:
                commit.forget_new_queues()
            self._undo(db, error)
            if isinstance(error, SentTooEarly):
                return self._commit(db, calls, ahead=False)
            if commit is not None and commit.swept and self._db is not None and self.driver.locked(error):
                pause_sweeps(commit)
                return self._commit(db, calls, ahead=False)
            lost = committing and self._db is None and isinstance(error, self.driver.error)
            if lost and not self.driver.read_only(error):
                raise Uncertain from error
            raise
        return replies, commit

    def _begin(self, db: ServerDb, calls: Sequence[port.Call], *, ahead: bool) -> Commit:
        numbered = any(isinstance(call, _NUMBERED) for call in calls)
        timed = any(isinstance(call, _TIMED) for call in calls)
        given = self.fake_now()
        begun = db.begin(
            given, numbers=numbered, due=timed, synced=type(calls[0]) is not port.Extend or not only_extends(calls)
        )
        send_ahead = _AHEAD.get(type(calls[0])) if ahead and len(calls) == 1 else None
        sent = None if send_ahead is None else send_ahead(db, self.registry, calls[0], given)
        now, block, delays, leases, ends = begun()
        return Commit(db, self.registry, now, block, (delays, leases, ends), sent)

    def _undo(self, db: ServerDb, error: BaseException) -> None:
        """Roll back; close the connection if that fails."""
        if self.driver.read_only(error) or self.driver.read_only(error.__cause__):
            # Another server may be the primary now: drop every connection to this one.
            db.close()
            self.readers.close()
        try:
            if not db.closed:
                db.rollback()
        except self.driver.error:
            db.close()
        if db.closed:
            self._db = None

    @contextlib.contextmanager
    def transaction(self, connection: Any) -> Iterator[Transaction]:
        """Calls and the user's own writes in one commit, on the user's connection or, if None, on the engine's."""
        if connection is not None:
            self._check_usable()
            with self.join(connection) as work:
                yield work
            return
        with self._lock:
            self._check_usable()
            try:
                db = self._connected(time.monotonic() + _PATIENCE_SECONDS)
                try:
                    with db.patient(), own(self, db) as work:
                        yield work
                except BaseException as error:
                    self._undo(db, error)
                    raise
            except self.driver.error as error:
                raise self.driver.translate(error) from error
        for commit in work.commits:
            commit.committed()
            self.announce(commit)

    def begin_joined(self, db: Db) -> Commit:
        """A commit inside the user's open transaction."""
        (now,) = db.row("join_user_transaction", self.fake_now())
        # Its own registry: new queues exist for others only once the user's transaction has committed.
        return Commit(db, QueueRegistry(self.registry.id, self.registry.stamp, self.registry.open_claims), now)

    def announce(self, commit: Commit) -> None:
        """Wake waiting claims, in this process and in others."""
        if self._after_commit is not None:
            self._after_commit(commit)
        commit.announce(self._wakeup, self._listener)

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable("this store was closed", hint="open it again")
        if os.getpid() != self._pid:
            raise Unavailable("this store was opened before a fork", hint="open it in the child process")

    # -- reading

    def journal(self, after: Position | None, limit: int, tenant: str | None) -> JournalPage:
        self.readers.run(journal.catch_up)
        return super().journal(after, limit, tenant)

    def seal(self) -> None:
        """Make sure that a crash cannot take back journal records that were already read."""

    def poll_status(self, queues: Sequence[tuple[str, str]]) -> port.PollStatus:
        return self.readers.run(lambda db: read.poll_status(db, queues, self._instance, self.fake_now()))

    # -- other processes

    def listen(self, listener: port.Listener) -> None:
        self._listener = listener
        if self._wakeup is None:
            self._wakeup = self._start_wakeup()

    def wake_others(self) -> None:
        notify = None if self._wakeup is None else self._wakeup.notify
        if notify is not None:
            notify()

    def _on_remote_change(self) -> bool:
        return not self._closed and self._listener is not None and self._listener.on_remote_change()

    def lead(self) -> bool:
        """Stay leader for a few more seconds, or try to become it; True if this process leads."""
        if time.monotonic() < self._leader_until - _LEADER_SECONDS / 2:
            return True
        started = time.monotonic()
        ours = self.readers.run(lambda db: db.row("acquire_leader", self._instance, _LEADER_SECONDS)) is not None
        self._leader_until = started + _LEADER_SECONDS if ours else 0.0
        return ours

    def close(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        if self._leader_until:
            with contextlib.suppress(TampuError):
                self.readers.run(lambda db: db.send("release_leader", self._instance))
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.close()
        if self._wakeup is not None:
            self._wakeup.close()
        self.readers.close()


class Uncertain(Exception):
    """The connection was lost after COMMIT was sent: nobody knows whether it happened."""


def _parts(calls: Sequence[port.Call]) -> Iterator[Sequence[port.Call]]:
    """The calls of a run, split into commits of bounded size. A call is never split."""
    part: list[port.Call] = []
    size = 0
    for call in calls:
        items = sum(map(_items, call.calls)) if isinstance(call, port.Together) else _items(call)
        if part and size + items > _MOST_ITEMS:
            yield part
            part, size = [], 0
        part.append(call)
        size += items
    yield part


def _items(call: port.Call) -> int:
    return len(getattr(call, "items", getattr(call, "numbers", ())))
