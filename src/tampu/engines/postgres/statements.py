"""Statements by name. Each is a file of `sql/` with its contract on top; parameters are $1, $2, …"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from typing import Any

import psycopg

from tampu.engines.postgres.wire import Blobs, Ints, Uuids, Wire

__all__ = ["NAME", "Blobs", "Db", "Ints", "Uuids", "blob", "in_schema", "statements", "text", "texts"]
NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}\Z")


@cache
def texts() -> dict[str, str]:
    """Every statement by the name of its file."""
    folder = resources.files("tampu.engines.postgres") / "sql"
    return {file.name[:-4]: file.read_text() for file in folder.iterdir() if file.name.endswith(".sql")}


def in_schema(text: str, schema: str) -> str:
    """A statement for another schema than ``tampu``, without its comments."""
    bare = re.sub(r"^\s*--.*\n|\s+--.*$", "", text, flags=re.MULTILINE)
    return re.sub(r"\btampu\.", f'"{schema}".', bare).strip().rstrip(";")


@cache
def statements(schema: str) -> dict[str, bytes]:
    return {name: in_schema(text, schema).encode() for name, text in texts().items()}


class Db:
    """A connection as the operations use it: statements by name, rows as tuples, values in binary."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str, *, ours: bool) -> None:
        self.connection = connection
        self.ours = ours
        """The session is ours alone: what is set or prepared in it stays."""
        self._texts = statements(schema)
        self._wire = Wire(connection, prepare=ours)
        self._together = False

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

    def rows(self, name: str, *parameters: Any) -> list[Any]:
        """What a statement answers."""
        if self._together:
            return self._wire.send(self._texts[name], parameters).get()
        with self.together():
            answer = self._wire.send(self._texts[name], parameters)
        return answer.rows

    def row(self, name: str, *parameters: Any) -> Any:
        rows = self.rows(name, *parameters)
        return rows[0] if rows else None

    def send(self, name: str, *parameters: Any) -> None:
        """Have a statement carried out that answers nothing; `together`, nobody waits for it."""
        with self.together():
            self._wire.send(self._texts[name], parameters)

    def ahead(self, name: str, *parameters: Any) -> Callable[[], list[Any]]:
        """Send a statement, `together` with others, and fetch its answer later."""
        return self._wire.send(self._texts[name], parameters).get

    def flush(self) -> None:
        """Let the server begin with what was sent, `together`."""
        self._wire.flush()

    def say(self, sql: bytes) -> None:
        """Send a command of the session: begin, commit, savepoints."""
        with self.together():
            self._wire.send(sql)


def blob(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()
