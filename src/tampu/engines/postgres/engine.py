"""The PostgreSQL engine: connects, runs commits, answers reads. What each verb does is in its own file.

One connection writes; a run of calls is one transaction on it. Reads come from any thread and have a few connections
of their own. A connection that is lost is made again: at once and unnoticed when nothing could have been committed,
with `Unavailable` when it was lost in the middle of a commit, for only the caller can know what to do then.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from tampu.engines import port
from tampu.engines.carrying import carry_out
from tampu.engines.postgres import (
    checking,
    claim,
    connecting,
    documents,
    journal,
    migrating,
    reading,
    settle,
)
from tampu.engines.postgres.bell import Bell
from tampu.engines.postgres.commit import Commit, House, NotYet
from tampu.engines.postgres.readers import Readers
from tampu.engines.postgres.statements import Db
from tampu.engines.postgres.transaction import Transaction, joined, own
from tampu.engines.postgres.upkeep import FOLD_MOST, Upkeep
from tampu.engines.postgres.verbs import VERBS
from tampu.model.errors import TampuError, Unavailable
from tampu.model.journal import JournalPage, Position
from tampu.model.message import Message, State
from tampu.model.times import SECOND, Clock

_NUMBERED = (port.Publish, port.Load, port.Replay, port.Free)
_TIMED = (port.Claim, port.Sweep)
_SOON = SECOND
"""Keepers look by themselves this often; only what is due sooner needs the bell."""
_TRIES = 8
_PATIENCE_SECONDS = 15.0
_SEAT_SECONDS = 5.0
_MOST_ITEMS = 100_000
"""Messages in one commit; a flood is several."""


class PostgresEngine:
    """See `tampu.engines.port.Engine` for the contract."""

    capabilities = frozenset({"transaction", "group_order", "load"})

    def __init__(
        self, url: str, *, clock: Clock | None = None, durability: str | None = None, migrate: bool = True
    ) -> None:
        self.place = connecting.target(url, durability)
        self.durability = self.place.durability
        self._synchronous = connecting.synchronous(self.durability)
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._listener: port.Listener | None = None
        self._bell: Bell | None = None
        self._closed = False
        self._me = secrets.token_hex(8)
        self._seated = 0.0
        self._upkeep = Upkeep(self.place)
        self._readers = Readers(self.place, self._check_usable)
        try:
            self._db: Db | None = connecting.connect(self.place)
            try:
                if migrate:
                    migrating.migrate(self._db.connection, self.place.schema)
                self.house = migrating.house(self._db.connection, self.place.schema)
            except BaseException:
                self._db.connection.close()
                raise
        except psycopg.Error as error:
            raise connecting.translate(error, self.place) from error

    def now(self) -> int:
        if self._clock is not None:
            return self._clock.now()
        return int(self._readers.ask(lambda db: db.row("clock"))[0])

    def _fake_now(self) -> int | None:
        """The time for statements; None: they look at the server's clock."""
        return None if self._clock is None else self._clock.now()

    # -- writing

    def run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        with self._lock:
            self._check_usable()
            replies: list[Any] = []
            for part in _parts(calls):
                replies.extend(self._run(part))
            return replies

    def _run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        try:
            replies, commit = self._insist(calls)
        except psycopg.Error as error:
            raise connecting.translate(error, self.place) from error
        except TampuError:
            raise
        except Exception:
            # One call that breaks must not take the others along: each alone, and only the broken one fails.
            if len(calls) == 1:
                raise
            return [self._alone(call) for call in calls]
        self._upkeep.moved(sum(commit.ready.values()))
        self._announce(commit)
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
            except _Uncertain as error:
                raise Unavailable(
                    f"{self.place.shown}: the connection was lost in a commit, it may or may not have happened",
                    hint="look before you call again; settling again, or publishing with an idempotency_key, is safe",
                ) from error.__cause__
            except psycopg.Error as error:
                if turn == _TRIES - 1 or not (connecting.retriable(error) or self._db is None):
                    raise
                pause.wait(0.01 * secrets.randbelow(1 << turn))
        raise AssertionError("unreachable")

    def _connected(self, give_up: float) -> Db:
        pause, seconds = threading.Event(), 0.02
        while self._db is None:
            try:
                self._db = connecting.connect(self.place)
            except psycopg.OperationalError as error:
                if time.monotonic() + seconds > give_up or self._closed:
                    raise connecting.translate(error, self.place) from error
                pause.wait(seconds)
                seconds = min(seconds * 2, 1.0)
        return self._db

    def _commit(self, db: Db, calls: Sequence[port.Call], *, ahead: bool = True) -> tuple[list[Any], Commit]:
        commit: Commit | None = None
        committing = False
        try:
            with db.together():
                db.say(b"BEGIN")
                commit = self._begin(db, calls, ahead=ahead)
                replies = carry_out(VERBS, commit, calls)
                commit.finish()
                if self._upkeep.fold_now():
                    db.send("fold", FOLD_MOST)
                committing = True
                db.say(b"COMMIT")
                db.flush()
                for fill in commit.deferred:
                    fill()
        except BaseException as error:
            if commit is not None:
                commit.forget_new_queues()
            self._undo(db)
            if isinstance(error, NotYet):
                return self._commit(db, calls, ahead=False)
            if committing and self._db is None and isinstance(error, psycopg.Error):
                raise _Uncertain from error
            raise
        return replies, commit

    def _begin(self, db: Db, calls: Sequence[port.Call], *, ahead: bool) -> Commit:
        numbered = any(isinstance(call, _NUMBERED) for call in calls)
        timed = any(isinstance(call, _TIMED) for call in calls)
        if not db.ours:
            db.send("settings", True)
        given = self._fake_now()
        begun = db.ahead("begin", given, numbered, timed, self._synchronous)
        sent = None
        if ahead:
            sent = claim.send_ahead(db, self.house, calls, given) or settle.send_ahead(db, self.house, calls, given)
        now, block, delays, leases, ends, *_ = begun()[0]
        return Commit(db, self.house, now, block, (delays, leases, ends), sent)

    def _undo(self, db: Db) -> None:
        """Leave the connection clean, or leave it."""
        try:
            if not db.connection.closed:
                db.connection.rollback()
        except psycopg.Error:
            db.connection.close()
        if db.connection.closed:
            self._db = None

    @contextlib.contextmanager
    def transaction(self, connection: Any) -> Iterator[Transaction]:
        """Calls and the user's own writes in one commit; on the engine's connection, or the user's."""
        if connection is not None:
            self._check_usable()
            with joined(self, connection) as work:
                yield work
            return
        with self._lock:
            self._check_usable()
            try:
                db = self._connected(time.monotonic() + _PATIENCE_SECONDS)
                try:
                    with own(self, db) as work:
                        yield work
                except BaseException:
                    self._undo(db)
                    raise
            except psycopg.Error as error:
                raise connecting.translate(error, self.place) from error
        for commit in work.commits:
            self._announce(commit)

    def begin_joined(self, db: Db) -> Commit:
        """A commit inside a transaction that is under way."""
        (now,) = db.row("join", self._fake_now())
        # A house of its own: whether these queues will exist is known only when the transaction has ended.
        return Commit(db, House(self.house.tail, self.house.stamp), now)

    def _announce(self, commit: Commit) -> None:
        """Tell who waits, in this process and the others."""
        soon = commit.due is not None and commit.due < commit.now + _SOON
        if self._bell is not None and (commit.ready or soon):
            self._bell.ring()
        if self._listener is not None:
            if commit.due is not None:
                self._listener.due(commit.due)
            if commit.ready:
                self._listener.ready({commit.named[q]: n for q, n in commit.ready.items()})

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable("this queue was closed", hint="open it again")
        if os.getpid() != self._pid:
            raise Unavailable("this queue was opened before a fork", hint="open it in the child process")

    # -- reading

    def get(self, tenant: str, id: str) -> Message | None:
        return self._readers.ask_once(lambda db: reading.whole(db, self.house, tenant, id, self._fake_now()))

    def page(
        self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
    ) -> port.Page | None:
        return self._readers.ask_once(lambda db: reading.page(db, self.house, tenant, queue, state, after, limit))

    def stats(self, tenant: str, queue: str | None) -> list[port.QueueStats]:
        return self._readers.ask(lambda db: reading.stats(db, tenant, queue, self._fake_now()))

    def queues(self) -> list[tuple[str, str]]:
        return [(tenant, name) for tenant, name, _ in self._readers.ask(lambda db: db.rows("queues"))]

    def journal(self, after: Position | None, limit: int, tenant: str | None) -> JournalPage:
        self._readers.ask(journal.catch_up)
        return self._readers.ask_once(lambda db: journal.read(db, self.house, after, limit, tenant))

    def document(self, kind: str, tenant: str, name: str) -> port.Document | None:
        return self._readers.ask(lambda db: documents.get(db, kind, tenant, name))

    def documents(self, kind: str, tenant: str) -> list[port.Document]:
        return self._readers.ask(lambda db: documents.list_all(db, kind, tenant))

    def revision(self) -> int:
        return int(self._readers.ask(lambda db: db.row("revision"))[0])

    def next_due(self) -> int | None:
        times = self._readers.ask(lambda db: db.row("due"))
        return min((at for at in times if at is not None), default=None)

    def check(self) -> list[tuple[str, str, str]]:
        return self._readers.ask(lambda db: checking.check(db, self.place.schema, self.durability))

    # -- company

    def listen(self, listener: port.Listener) -> None:
        self._listener = listener
        if self._bell is None:
            self._bell = Bell(self.place, self._stirred)

    def _stirred(self) -> bool:
        return not self._closed and self._listener is not None and self._listener.stirred()

    def lead(self) -> bool:
        """Hold the keeper's seat for a few seconds more, or try to take it."""
        if time.monotonic() < self._seated - _SEAT_SECONDS / 2:
            return True
        asked = time.monotonic()
        ours = self._readers.ask(lambda db: db.row("seat", self._me, _SEAT_SECONDS)) is not None
        self._seated = asked + _SEAT_SECONDS if ours else 0.0
        return ours

    def close(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        if self._seated:
            with contextlib.suppress(TampuError):
                self._readers.ask(lambda db: db.send("seat_leave", self._me))
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.connection.close()
        if self._bell is not None:
            self._bell.close()
        self._upkeep.close()
        self._readers.close()


class _Uncertain(Exception):
    """The connection was lost when the commit was under way."""


def _parts(calls: Sequence[port.Call]) -> Iterator[Sequence[port.Call]]:
    """The calls of a run, in commits of bounded size. A call is never cut."""
    if len(calls) == 1:
        yield calls
        return
    part: list[port.Call] = []
    size = 0
    for call in calls:
        items = len(getattr(call, "items", getattr(call, "numbers", ())))
        if part and size + items > _MOST_ITEMS:
            yield part
            part, size = [], 0
        part.append(call)
        size += items
    yield part
