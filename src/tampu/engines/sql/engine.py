"""An engine on a SQL database: connects, runs commits, answers reads. What each verb does is in its own file.

One connection writes; a run of calls is one transaction on it. Reads come from any thread and have a few connections
of their own. A connection that is lost is made again: at once and unnoticed when nothing could have been committed,
with `Unavailable` when it was lost in the middle of a commit, for only the caller can know what to do then.
"""

from __future__ import annotations

import abc
import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from tampu.engines import port
from tampu.engines.dispatch import carry_out
from tampu.engines.merged_claims import run_joined
from tampu.engines.sql import claim, documents, journal, read, settle, transfer, unit_names
from tampu.engines.sql.commit import Commit, NotYet
from tampu.engines.sql.db import Db, Driver
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.engines.sql.read_pool import ReadPool
from tampu.engines.sql.sweep import rest
from tampu.engines.sql.user_transaction import Transaction, own
from tampu.engines.sql.verbs import VERBS
from tampu.engines.transfer import Import, RequestPage, SnapshotPage
from tampu.engines.units import Refused, run_apart
from tampu.model.errors import TampuError, Unavailable
from tampu.model.journal import JournalPage, Position
from tampu.model.message import Message, State
from tampu.model.times import SECOND, Clock

_NUMBERED = (port.Publish, port.Load, Import, port.Replay, port.Free, port.Together)
_TIMED = (port.Claim, port.Sweep)
_SOON = SECOND
"""Keepers look by themselves this often; only what is due sooner needs the bell."""
_TRIES = 8
_PATIENCE_SECONDS = 15.0
_LEADER_SECONDS = 5.0
FOLD_EVERY = 200
"""Commits of this process between two folds of the counts."""
_FOLD_MOST = 5_000
_MOST_ITEMS = 100_000
"""Messages in one commit; a flood is several."""


class Wakeup(Protocol):
    """Tells other processes that something is ready, and hears it from them."""

    def notify(self) -> None: ...

    def close(self) -> None: ...


class SqlEngine(abc.ABC):
    """See `tampu.engines.port.Engine` for the contract."""

    capabilities = frozenset({"transaction", "group_order", "load", "atomic:isolated"})
    schema = 0
    statements_may_commit = False
    """Some of the user's own statements commit by themselves what came before them, such as CREATE TABLE."""

    def __init__(self, driver: Driver, durability: str, clock: Clock | None) -> None:
        self.driver = driver
        self.durability = durability
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._listener: port.Listener | None = None
        self._wakeup: Wakeup | None = None
        self._closed = False
        self._me = secrets.token_hex(8)
        self._leader = 0.0
        self._commits = 0
        self.readers = ReadPool(driver, self._check_usable)
        try:
            self._db: Db | None = driver.connect()
            try:
                self.registry = self._open_schema(self._db)
            except BaseException:
                self._db.close()
                raise
        except driver.error as error:
            raise driver.translate(error) from error

    @abc.abstractmethod
    def _open_schema(self, db: Db) -> QueueRegistry:
        """Make or check the tables, with the first connection; what is true of them for good."""

    @abc.abstractmethod
    def _listening(self) -> Wakeup:
        """Begin to hear other processes; `_stirred` is what to call."""

    @abc.abstractmethod
    def join(self, connection: Any) -> contextlib.AbstractContextManager[Transaction]:
        """Work inside a transaction of the user's."""

    @abc.abstractmethod
    def check(self) -> list[tuple[str, str, str]]: ...

    def notify_inside(self, db: Db) -> None:  # noqa: B027 - most have nothing to do
        """In a transaction of the user's: those who wait shall hear of it when it commits."""

    def _passed(self, commit: Commit) -> None:  # noqa: B027 - most have nothing to do
        """Something was committed."""

    def now(self) -> int:
        if self._clock is not None:
            return self._clock.now()
        return int(self.readers.ask(lambda db: db.value("select_server_time")))

    def fake_now(self) -> int | None:
        """The time for statements; None: they look at the server's clock."""
        return None if self._clock is None else self._clock.now()

    # -- writing

    def run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        with self._lock:
            self._check_usable()
            replies: list[Any] = []
            for part in _parts(calls):
                if len(part) == len(calls):
                    return run_joined(self._run, part)
                replies.extend(self._apart(part))
            return replies

    def _apart(self, part: Sequence[port.Call]) -> list[Any | TampuError]:
        """One commit of several: when it fails, that is told to its callers only; the others' may have happened."""
        if len(part) == 1:
            return [self._alone(part[0])]
        try:
            return run_joined(self._run, part)
        except TampuError as error:
            return [error] * len(part)

    def _run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        try:
            replies, commit = self._insist(calls)
        except self.driver.error as error:
            raise self.driver.translate(error) from error
        except Refused as refused:
            return run_apart(self._apart, self._alone, calls, refused)
        except TampuError:
            raise
        except Exception:
            # One call that breaks must not take the others along: each alone, and only the broken one fails.
            if len(calls) == 1:
                raise
            return [self._alone(call) for call in calls]
        commit.landed()
        self._passed(commit)
        self.announce(commit)
        return replies

    def _alone(self, call: port.Call) -> Any | TampuError:
        try:
            return self._run([call])[0]
        except TampuError as error:
            return error
        except Exception as error:
            failed = TampuError(f"{type(call).__name__.lower()} failed: {error!r}", hint="this is a fault of tampu's")
            failed.__cause__ = error
            return failed

    def _insist(self, calls: Sequence[port.Call]) -> tuple[list[Any], Commit]:
        """Commit; again when the server undid it for others' sake, or the connection was lost before the commit."""
        give_up = time.monotonic() + _PATIENCE_SECONDS
        pause = threading.Event()
        for turn in range(_TRIES):
            try:
                return self._commit(self._connected(give_up), calls)
            except Uncertain as error:
                raise Unavailable(
                    f"{self.driver.shown}: the connection was lost in a commit, it may or may not have happened",
                    hint="look before you call again; settling again, or publishing with an idempotency_key, is safe",
                ) from error.__cause__
            except self.driver.error as error:
                lost = self._db is None and not self.driver.read_only(error) and time.monotonic() < give_up
                if turn == _TRIES - 1 or not (lost or self.driver.retriable(error)):
                    raise
                pause.wait(0.01 * secrets.randbelow(1 << turn))
        raise AssertionError("unreachable")

    def _connected(self, give_up: float) -> Db:
        pause, seconds = threading.Event(), 0.02
        while self._db is None:
            try:
                self._db = self.driver.connect()
            except self.driver.error as error:
                if not self.driver.gone(error) or time.monotonic() + seconds > give_up or self._closed:
                    raise self.driver.translate(error) from error
                pause.wait(seconds)
                seconds = min(seconds * 2, 1.0)
        return self._db

    def _commit(self, db: Db, calls: Sequence[port.Call], *, ahead: bool = True) -> tuple[list[Any], Commit]:
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
                db.say(b"COMMIT")
                db.flush()
                for fill in commit.deferred:
                    fill()
        except BaseException as error:
            if commit is not None:
                commit.forget_new_queues()
            self._undo(db, error)
            if isinstance(error, NotYet):
                return self._commit(db, calls, ahead=False)
            if commit is not None and commit.swept and self._db is not None and self.driver.locked(error):
                rest(commit)
                return self._commit(db, calls, ahead=False)
            lost = committing and self._db is None and isinstance(error, self.driver.error)
            if lost and not self.driver.read_only(error):
                raise Uncertain from error
            raise
        return replies, commit

    def _begin(self, db: Db, calls: Sequence[port.Call], *, ahead: bool) -> Commit:
        numbered = any(isinstance(call, _NUMBERED) for call in calls)
        timed = any(isinstance(call, _TIMED) for call in calls)
        given = self.fake_now()
        begun = db.begin(given, numbers=numbered, due=timed)
        sent = None
        if ahead:
            sent = claim.send_ahead(db, self.registry, calls, given) or settle.send_ahead(
                db, self.registry, calls, given
            )
        now, block, delays, leases, ends = begun()
        return Commit(db, self.registry, now, block, (delays, leases, ends), sent)

    def _undo(self, db: Db, error: BaseException) -> None:
        """Leave the connection clean, or leave it."""
        if self.driver.read_only(error) or self.driver.read_only(error.__cause__):
            # Another server may have taken over: nobody here stays with this one.
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
        """Calls and the user's own writes in one commit; on the engine's connection, or the user's."""
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
            commit.landed()
            self.announce(commit)

    def begin_joined(self, db: Db) -> Commit:
        """A commit inside a transaction that is under way."""
        (now,) = db.row("join_user_transaction", self.fake_now())
        # A house of its own: whether these queues will exist is known only when the transaction has ended.
        return Commit(db, QueueRegistry(self.registry.tail, self.registry.stamp, self.registry.watched), now)

    def announce(self, commit: Commit) -> None:
        """Tell who waits, in this process and the others."""
        soon = commit.due is not None and commit.due < commit.now + _SOON
        wakeup = self._wakeup
        if wakeup is not None and (commit.ready or soon):
            wakeup.notify()
        if self._listener is not None:
            if commit.due is not None:
                self._listener.due(commit.due)
            if commit.ready:
                self._listener.ready({commit.named[q]: n for q, n in commit.ready.items()})
            if commit.leases_expired:
                self._listener.leases_expired({commit.named[q]: counts for q, counts in commit.leases_expired.items()})

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable("this queue was closed", hint="open it again")
        if os.getpid() != self._pid:
            raise Unavailable("this store was opened before a fork", hint="open it in the child process")

    # -- reading

    def get(self, tenant: str, id: str) -> Message | None:
        return self.readers.ask_once(lambda db: read.whole(db, self.registry, tenant, id, self.fake_now()))

    def page(
        self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
    ) -> port.Page | None:
        return self.readers.ask_once(lambda db: read.page(db, self.registry, tenant, queue, state, after, limit))

    def stats(self, tenant: str, queue: str | None) -> list[port.QueueStats]:
        return self.readers.ask(lambda db: read.stats(db, tenant, queue, self.fake_now()))

    def queues(self) -> list[tuple[str, str]]:
        return [(tenant, name) for tenant, name, _ in self.readers.ask(lambda db: db.rows("list_queues"))]

    def journal(self, after: Position | None, limit: int, tenant: str | None) -> JournalPage:
        self.readers.ask(journal.catch_up)
        return self.readers.ask_once(lambda db: journal.read(db, self.registry, after, limit, tenant))

    def seal(self) -> None:  # noqa: B027 - most have nothing to do
        """What anybody has seen of the journal so far must outlive a crash; mostly only what does is seen."""

    def document(self, kind: str, tenant: str, name: str) -> port.Document | None:
        return self.readers.ask(lambda db: documents.get(db, kind, tenant, name))

    def documents(self, kind: str, tenant: str) -> list[port.Document]:
        return self.readers.ask(lambda db: documents.list_all(db, kind, tenant))

    def all_documents(self) -> list[port.Document]:
        return self.readers.ask(documents.every)

    def kept(
        self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
    ) -> SnapshotPage | None:
        now = self.fake_now()
        return self.readers.ask_once(
            lambda db: transfer.page(db, self.registry, tenant, queue, state, after, limit, now)
        )

    def requests(self, tenant: str, after: tuple[Any, ...] | None, limit: int) -> RequestPage:
        now = self.fake_now()
        return self.readers.ask_once(lambda db: transfer.requests(db, self.registry, tenant, after, limit, now))

    def revision(self) -> int:
        return int(self.readers.ask(lambda db: db.value("select_revision")))

    def next_due(self) -> int | None:
        times = self.readers.ask(lambda db: db.row("select_next_due"))
        return min((at for at in times if at is not None), default=None)

    def poll_status(self, queues: Sequence[tuple[str, str]]) -> port.PollStatus:
        return self.readers.ask(lambda db: read.poll_status(db, queues, self._me, self.fake_now()))

    # -- company

    def listen(self, listener: port.Listener) -> None:
        self._listener = listener
        if self._wakeup is None:
            self._wakeup = self._listening()

    def _stirred(self) -> bool:
        return not self._closed and self._listener is not None and self._listener.on_remote_change()

    def lead(self) -> bool:
        """Hold the keeper's seat for a few seconds more, or try to take it."""
        if time.monotonic() < self._leader - _LEADER_SECONDS / 2:
            return True
        asked = time.monotonic()
        ours = self.readers.ask(lambda db: db.row("acquire_leader", self._me, _LEADER_SECONDS)) is not None
        self._leader = asked + _LEADER_SECONDS if ours else 0.0
        return ours

    def close(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        if self._leader:
            with contextlib.suppress(TampuError):
                self.readers.ask(lambda db: db.send("release_leader", self._me))
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.close()
        if self._wakeup is not None:
            self._wakeup.close()
        self.readers.close()


class Uncertain(Exception):
    """The connection was lost when the commit was under way."""


def _parts(calls: Sequence[port.Call]) -> Iterator[Sequence[port.Call]]:
    """The calls of a run, in commits of bounded size. A call is never cut."""
    if len(calls) == 1:
        yield calls
        return
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
