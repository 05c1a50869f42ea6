"""The database as verbs see it: statements by name, columns of values in, rows as tuples out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tampu.model.errors import TampuError


class Ints(list[int | None]):
    """A column of numbers (and None)."""

    __slots__ = ()


class Blobs(list[bytes | None]):
    """A column of bytes (and None)."""

    __slots__ = ()


class Uuids(Blobs):
    """A column of ids, as 16 bytes (and None)."""

    __slots__ = ()


class Values:
    """Rows of values, the last parameter of most statements that write: a database takes them as rows or as columns.

    ``kinds`` has a letter for each column: i for numbers, b for bytes, u for ids.
    """

    __slots__ = ("kinds", "rows")

    def __init__(self, kinds: str, rows: Sequence[Sequence[Any]]) -> None:
        self.kinds = kinds
        self.rows = rows

    def columns(self) -> list[tuple[str, Sequence[Any]]]:
        """(kind, values) of each column."""
        return list(zip(self.kinds, zip(*self.rows, strict=True) if self.rows else [()] * len(self.kinds), strict=True))


class Db(Protocol):
    """One connection, as the rules use it. Used by one thread at a time."""

    connection: Any
    """The driver's connection object."""

    @property
    def closed(self) -> bool: ...

    @property
    def active(self) -> bool:
        """True if a transaction is open and has not failed."""
        ...

    def together(self) -> contextlib.AbstractContextManager[None]:
        """Statements inside are pipelined: only reading a result waits, and the end waits for all of them."""
        ...

    def rows(self, name: str, *parameters: Any) -> list[Any]:
        """The rows that a statement returns."""
        ...

    def row(self, name: str, *parameters: Any) -> Any:
        """The first row, or None."""
        rows = self.rows(name, *parameters)
        return rows[0] if rows else None

    def value(self, name: str, *parameters: Any) -> Any:
        """The only column of the first row, or None."""
        row = self.row(name, *parameters)
        if row is None:
            return None
        (value,) = row
        return value

    def send(self, name: str, *parameters: Any) -> None:
        """Run a statement that returns nothing; inside `together` without waiting for it."""
        ...

    def ahead(self, name: str, *parameters: Any) -> Callable[[], list[Any]]:
        """Send a statement inside `together`; call the result later to get its rows."""
        ...

    def command(self, sql: bytes) -> None:
        """Send a session command such as BEGIN, COMMIT or SAVEPOINT."""
        ...

    def execute(self, sql: str, parameters: Any) -> Any:
        """Run the user's own SQL, in the driver's parameter style; returns a cursor."""
        ...


class ServerDb(Db, Protocol):
    """One connection to a server."""

    def alive(self) -> bool:
        """False if the server has closed this idle connection. Mostly needs no round trip."""
        ...

    def close(self) -> None: ...

    def flush(self) -> None:
        """Send what `together` has gathered, so that the server can begin."""
        ...

    def begin(self, now: int | None, *, numbers: bool, due: bool, synced: bool) -> Callable[[], Any]:
        """Begin a commit. Call the result later: (now, first number of a block, next delay, lease, expiry).

        One that is not ``synced`` need not wait for the disk.
        """
        ...

    def begin_reading(self) -> None:
        """Begin a read-only transaction: all reads until COMMIT see one snapshot."""
        ...

    def patient(self) -> contextlib.AbstractContextManager[None]:
        """No reply timeout inside, because the user's own SQL runs there."""
        ...

    def rollback(self) -> None: ...


class Translator(Protocol):
    """Knows what the errors of a database mean."""

    error: type[Exception]

    def translate(self, error: Any) -> TampuError:
        """The error for the caller. Nothing of the call took effect."""
        ...


class Driver(Translator, Protocol):
    """Connects to the database."""

    shown: str
    """Address of the database for error texts, without the password."""

    def connect(self) -> ServerDb: ...

    def gone(self, error: BaseException) -> bool:
        """True if the connection or the network failed, not the statement."""
        ...

    def retriable(self, error: BaseException) -> bool:
        """True if the server rolled back because of a conflict with others: the transaction can be repeated."""
        ...

    def locked(self, error: BaseException) -> bool:
        """True if waiting for a lock took too long."""
        ...

    def read_only(self, error: BaseException | None) -> bool:
        """True if the server refuses writes, as a replica or a demoted primary does."""
        ...


def blob(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()
