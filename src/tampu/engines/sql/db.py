"""A database as the operations see it: statements by name, columns of values in, rows of tuples out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from tampu.model.errors import TampuError


class Ints:
    """A column of numbers (and None)."""

    __slots__ = ("values",)

    def __init__(self, values: Iterable[int | None]) -> None:
        self.values = list(values)


class Blobs:
    """A column of bytes (and None)."""

    __slots__ = ("values",)

    def __init__(self, values: Iterable[bytes | None]) -> None:
        self.values = list(values)


class Uuids(Blobs):
    """A column of ids, as 16 bytes (and None)."""

    __slots__ = ()


class Db(Protocol):
    """One connection. Used by one thread at a time."""

    connection: Any
    """The driver's own."""

    @property
    def closed(self) -> bool: ...

    @property
    def active(self) -> bool:
        """Is a transaction open, and may go on?"""
        ...

    def alive(self) -> bool:
        """Without a round trip: has the server ended this connection while it was idle?"""
        ...

    def close(self) -> None: ...

    def together(self) -> contextlib.AbstractContextManager[None]:
        """What is sent inside goes out together; nobody waits but for answers, and for all of it at the end."""
        ...

    def rows(self, name: str, *parameters: Any) -> list[Any]:
        """What a statement answers."""
        ...

    def row(self, name: str, *parameters: Any) -> Any:
        """The first row, or None."""
        ...

    def value(self, name: str, *parameters: Any) -> Any:
        """The only column of the first row, or None."""
        ...

    def send(self, name: str, *parameters: Any) -> None:
        """Have a statement carried out that answers nothing; `together`, nobody waits for it."""
        ...

    def ahead(self, name: str, *parameters: Any) -> Callable[[], list[Any]]:
        """Send a statement, `together` with others, and fetch its answer later."""
        ...

    def flush(self) -> None:
        """Let the server begin with what was sent, `together`."""
        ...

    def say(self, sql: bytes) -> None:
        """Send a command of the session: begin, commit, savepoints."""
        ...

    def execute(self, sql: str, parameters: Any) -> Any:
        """SQL of the user's own, as their driver takes it; a cursor with the answer."""
        ...

    def begin(self, now: int | None, *, numbers: bool, due: bool) -> Callable[[], Any]:
        """Begin a commit. Fetch later: the time, the first of a block of numbers, the next delay, lease and expiry."""
        ...

    def begin_reading(self) -> None:
        """What is read from now on, until COMMIT, is of one moment."""
        ...

    def patient(self) -> contextlib.AbstractContextManager[None]:
        """Inside, the server may take any time to answer: what is asked of it is not only ours."""
        ...

    def rollback(self) -> None: ...


class Driver(Protocol):
    """How to reach the database, and what its errors mean."""

    error: type[Exception]
    shown: str
    """Where it is, without a password."""

    def connect(self) -> Db: ...

    def gone(self, error: BaseException) -> bool:
        """Was it the connection, or the way to the server, that failed? Not what was asked of it."""
        ...

    def retriable(self, error: BaseException) -> bool:
        """Did the server undo the transaction for the sake of others, so that it may simply be tried again?"""
        ...

    def locked(self, error: BaseException) -> bool:
        """Did others have locked, for longer than we wait, what was asked for?"""
        ...

    def read_only(self, error: BaseException | None) -> bool:
        """Is the server one that may not be written to, perhaps not any more?"""
        ...

    def translate(self, error: Any) -> TampuError:
        """What an error means for the caller. Nothing of the call took effect."""
        ...


def blob(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()
