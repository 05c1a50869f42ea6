"""A PostgreSQL connection that runs the statements in `statements/` by name."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from tampu.engines.postgres.skip_dead_rows import DeadRowSkip
from tampu.engines.postgres.wire import Wire
from tampu.engines.sql import db as sql_db
from tampu.engines.sql.named_statements import load

T = TypeVar("T")
MANY = 50
"""From this many messages on, replies are built while the server commits."""
LOCK_SECONDS = 10.0
"""How long an engine's commit waits for a lock, unless the user has set lock_timeout. Not for users' transactions."""
_WHOLE = "snapshot_"
"""Prefix of statements that read the whole store: they have no reply timeout."""
NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}\Z")


def in_schema(text: str, schema: str) -> str:
    """The statement with ``tampu.`` replaced by the schema's name, without comments."""
    simple = re.sub(r"^\s*--.*\n|\s+--.*$", "", text, flags=re.MULTILINE)
    return re.sub(r"\btampu\.", f'"{schema}".', simple).strip().rstrip(";")


@cache
def statements(schema: str) -> dict[str, bytes]:
    """All statements by name."""
    return {name: in_schema(text, schema).encode() for name, text in load("tampu.engines.postgres").items()}


class Db(sql_db.ServerDb):
    """See `tampu.engines.sql.db.Db`. Values are sent in binary format."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        schema: str,
        *,
        ours: bool,
        synchronous: str = "on",
        dead_rows: DeadRowSkip | None = None,
        patience: float | None = None,
    ) -> None:
        self.connection = connection
        self._dead_rows = dead_rows or DeadRowSkip()
        self.synchronous = synchronous
        """synchronous_commit: on (a stricter setting of the server stays), or off."""
        self.ours = ours
        """True if the session is not shared: settings and prepared statements stay."""
        self._texts = statements(schema)
        self._wire = Wire(connection, prepare=ours, patience=patience)
        self._together = False
        self.answered = False

    @property
    def closed(self) -> bool:
        return self.connection.closed

    @property
    def active(self) -> bool:
        return not self.closed and self.connection.info.transaction_status == TransactionStatus.INTRANS

    def alive(self) -> bool:
        if self.closed:
            return False
        try:
            self.connection.pgconn.consume_input()
        except psycopg.OperationalError:
            return False
        return self.connection.pgconn.status == psycopg.pq.ConnStatus.OK

    def close(self) -> None:
        self.connection.close()

    def execute(self, sql: str, parameters: Any) -> Any:
        return self.connection.execute(sql, parameters)

    def begin(self, now: int | None, *, numbers: bool, due: bool, synced: bool) -> Callable[[], Any]:
        self.command(b"BEGIN")
        if not self.ours:
            self.send("configure_session", True)
        past = self._dead_rows.begin()
        lock_ms = 0 if self._wire.patience is None else LOCK_SECONDS * 1000
        synchronous = self.synchronous if synced else "off"
        begun = self.ahead("begin", now, numbers, due, synchronous, *past, f"{lock_ms:.0f}")

        def answer() -> Any:
            ((began, first, delay, lease, expiry, *_),) = begun()
            if due:
                self._dead_rows.saw_due(began, (delay, lease, expiry))
            return began, first, delay, lease, expiry

        return answer

    def begin_reading(self) -> None:
        self.command(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def rollback(self) -> None:
        self._dead_rows.rolled_back()
        self.connection.rollback()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        if self._together:
            yield
            return
        self._wire.enter()
        self._together = True
        try:
            yield
            self._wire.leave()
        except BaseException as error:
            if isinstance(error, Exception):
                with contextlib.suppress(psycopg.Error):
                    self._wire.abandon()
            else:
                self.connection.close()  # interrupted at an unknown point, such as by Ctrl-C: cannot be used again
            raise
        finally:
            self._together = False

    @contextlib.contextmanager
    def patient(self) -> Iterator[None]:
        usual, self._wire.patience = self._wire.patience, None
        try:
            yield
        finally:
            self._wire.patience = usual

    def rows(self, name: str, *parameters: Any) -> list[Any]:
        if name == "claim_ready":
            return self._claim_ready(parameters)()
        if name.startswith(_WHOLE):
            with self.patient():
                return self._rows(name, *parameters)
        return self._rows(name, *parameters)

    def _rows(self, name: str, *parameters: Any) -> list[Any]:
        if self._together:
            return self._wire.send(self._texts[name], parameters).get()
        with self.together():
            answer = self._wire.send(self._texts[name], parameters)
        return answer.rows

    def send(self, name: str, *parameters: Any) -> None:
        if name == "rerank":
            self._dead_rows.forget()
        with self.together():
            self._wire.send(self._texts[name], parameters)

    def ahead(self, name: str, *parameters: Any) -> Callable[[], list[Any]]:
        if name == "claim_ready":
            return self._claim_ready(parameters)
        return self._wire.send(self._texts[name], parameters).get

    def _claim_ready(self, parameters: tuple[Any, ...]) -> Callable[[], list[Any]]:
        """Send a claim that skips dead rows at the front, if there are many."""
        q, *_ = parameters
        head = self._dead_rows.head(q)
        sent = self._wire.send(self._texts["claim_ready"], (*parameters, head))

        def answer() -> list[Any]:
            rows = sent.get()
            if not rows and head is not None:  # a late commit may have put messages before the head
                rows = self._wire.send(self._texts["claim_ready"], (*parameters, None)).get()
            if rows:
                *_, last = rows[-1]
                self._dead_rows.claimed(q, last, lambda: int(self.value("count_dead_rows")))
            return rows

        return answer

    def whole(self, name: str, count: int, make: Callable[[list[Any]], T], *parameters: Any) -> T:
        """Run a statement that is a whole commit; ``make`` builds the reply, for large ones while the server commits.

        If it fails, `answered` tells whether the statement itself had succeeded.
        """
        answer, made = None, []
        try:
            with self.together():
                answer = self._wire.send(self._texts[name], parameters)
                if count >= MANY:
                    self._wire.answer_first(answer)
                    made = [make(answer.rows)]
        finally:
            self.answered = answer is not None and answer.received
        return made[0] if made else make(answer.rows)

    def claim_in_one_statement(
        self, make: Callable[[int, list[Any]], T], q: int, limit: int, *parameters: Any, record: tuple[bytes, bytes]
    ) -> tuple[Any, T]:
        """Run a claim as a whole commit; returns its first row (see the statement) and what ``make`` builds."""

        def read(answer: list[Any]) -> tuple[Any, list[Any], T]:
            summary, *rows = answer
            began, *_ = summary
            return summary, rows, make(began, rows)

        past, head = self._dead_rows.begin(), self._dead_rows.head(q)
        given = (*past, self.synchronous, *record)
        summary, rows, made = self.whole("claim_in_one_statement", limit, read, q, limit, *parameters, head, *given)
        began, simple, delay, lease, expiry, _ = summary
        if simple is None and head is not None:  # a late commit may have put messages before the head
            summary, rows, made = self.whole("claim_in_one_statement", limit, read, q, limit, *parameters, None, *given)
            began, simple, delay, lease, expiry, _ = summary
        self._dead_rows.saw_due(began, (delay, lease, expiry))
        if rows:
            *_, last, _ = rows[-1]
            self._dead_rows.claimed(q, last, lambda: int(self.value("count_dead_rows")))
        return summary, made

    def flush(self) -> None:
        self._wire.flush()

    def command(self, sql: bytes) -> None:
        with self.together():
            self._wire.send(sql)
