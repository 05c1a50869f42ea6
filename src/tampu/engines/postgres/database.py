"""A connection that runs the statements of `statements/` by name. Their parameters are $1, $2, …"""

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
from tampu.engines.sql.named_statements import load

T = TypeVar("T")
MANY = 50
"""Messages of a commit from which on it is worth to make its replies while the server commits."""
LOCK_SECONDS = 10.0
"""How long an engine's commit waits for a lock, unless the user has set something. Transactions of users wait as they
like."""
_WHOLE = "snapshot_"
"""Statements about all messages there are: it is not for us to say how long they take."""
NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}\Z")


def in_schema(text: str, schema: str) -> str:
    """A statement for another schema than ``tampu``, without its comments."""
    simple = re.sub(r"^\s*--.*\n|\s+--.*$", "", text, flags=re.MULTILINE)
    return re.sub(r"\btampu\.", f'"{schema}".', simple).strip().rstrip(";")


@cache
def statements(schema: str) -> dict[str, bytes]:
    """Every statement by its name."""
    return {name: in_schema(text, schema).encode() for name, text in load("tampu.engines.postgres").items()}


class Db:
    """A connection as the operations use it: statements by name, rows as tuples, values in binary."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        schema: str,
        *,
        ours: bool,
        synchronous: str = "on",
        stepping: DeadRowSkip | None = None,
        patience: float | None = None,
    ) -> None:
        self.connection = connection
        self._stepping = stepping or DeadRowSkip()
        self.synchronous = synchronous
        """synchronous_commit: on unless the server has something stricter, or off."""
        self.ours = ours
        """The session is ours alone: what is set or prepared in it stays."""
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

    def begin(self, now: int | None, *, numbers: bool, due: bool) -> Callable[[], Any]:
        self.say(b"BEGIN")
        if not self.ours:
            self.send("configure_session", True)
        past = self._stepping.begin()
        lock_ms = 0 if self._wire.patience is None else LOCK_SECONDS * 1000
        begun = self.ahead("begin", now, numbers, due, self.synchronous, *past, f"{lock_ms:.0f}")

        def answer() -> Any:
            ((began, first, delay, lease, expiry, *_),) = begun()
            if due:
                self._stepping.looked(began, (delay, lease, expiry))
            return began, first, delay, lease, expiry

        return answer

    def begin_reading(self) -> None:
        self.say(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def rollback(self) -> None:
        self._stepping.undone()
        self.connection.rollback()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What is sent inside goes out together; nobody waits but for answers, and for all of it at the end."""
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
                self.connection.close()  # interrupted anywhere: nobody knows what is under way
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
        """What a statement answers."""
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

    def row(self, name: str, *parameters: Any) -> Any:
        rows = self.rows(name, *parameters)
        return rows[0] if rows else None

    def value(self, name: str, *parameters: Any) -> Any:
        row = self.row(name, *parameters)
        if row is None:
            return None
        (value,) = row
        return value

    def send(self, name: str, *parameters: Any) -> None:
        """Have a statement carried out that answers nothing; `together`, nobody waits for it."""
        if name == "rerank":
            self._stepping.forget()
        with self.together():
            self._wire.send(self._texts[name], parameters)

    def ahead(self, name: str, *parameters: Any) -> Callable[[], list[Any]]:
        """Send a statement, `together` with others, and fetch its answer later."""
        if name == "claim_ready":
            return self._claim_ready(parameters)
        return self._wire.send(self._texts[name], parameters).get

    def _claim_ready(self, parameters: tuple[Any, ...]) -> Callable[[], list[Any]]:
        """Send a claim, from where it may begin."""
        q, *_ = parameters
        head = self._stepping.head(q)
        sent = self._wire.send(self._texts["claim_ready"], (*parameters, head))

        def answer() -> list[Any]:
            rows = sent.get()
            if not rows and head is not None:  # there may be something before it, by a commit that came late
                rows = self._wire.send(self._texts["claim_ready"], (*parameters, None)).get()
            if rows:
                *_, last = rows[-1]
                self._stepping.took(q, last, lambda: int(self.value("count_dead_rows")))
            return rows

        return answer

    def whole(self, name: str, count: int, make: Callable[[list[Any]], T], *parameters: Any) -> T:
        """A statement that is a commit by itself, and what is made of its answer; of many, while the server commits.

        When it fails, `answered` says if it was carried out before.
        """
        answer, made = None, []
        try:
            with self.together():
                answer = self._wire.send(self._texts[name], parameters)
                if count >= MANY:
                    self._wire.answer_first(answer)
                    made = [make(answer.rows)]
        finally:
            self.answered = answer is not None and answer.there
        return made[0] if made else make(answer.rows)

    def claim_in_one_statement(
        self, make: Callable[[int, list[Any]], T], q: int, limit: int, *parameters: Any, record: tuple[bytes, bytes]
    ) -> tuple[Any, T]:
        """A claim that is a commit; what it says of itself, and what is made of its time and the rows it took."""

        def read(answer: list[Any]) -> tuple[Any, list[Any], T]:
            told, *rows = answer
            began, *_ = told
            return told, rows, make(began, rows)

        past, head = self._stepping.begin(), self._stepping.head(q)
        given = (*past, self.synchronous, *record)
        told, rows, made = self.whole("claim_in_one_statement", limit, read, q, limit, *parameters, head, *given)
        began, plain, delay, lease, expiry, _ = told
        if plain is None and head is not None:  # there may be something before it, by a commit that came late
            told, rows, made = self.whole("claim_in_one_statement", limit, read, q, limit, *parameters, None, *given)
            began, plain, delay, lease, expiry, _ = told
        self._stepping.looked(began, (delay, lease, expiry))
        if rows:
            *_, last, _ = rows[-1]
            self._stepping.took(q, last, lambda: int(self.value("count_dead_rows")))
        return told, made

    def flush(self) -> None:
        """Let the server begin with what was sent, `together`."""
        self._wire.flush()

    def say(self, sql: bytes) -> None:
        """Send a command of the session: begin, commit, savepoints."""
        with self.together():
            self._wire.send(sql)
