"""Fills values into the statements of `statements/`.

``$1``, ``$2``, … are values. A column of values becomes a list with commas, as for ``IN ($1)``. Text in braces is
repeated for each row of the columns inside, separated by commas: ``VALUES {($1, $2)}``, or by OR if it ends with OR:
``WHERE {(a = $1 AND b = $2) OR}``. (``(a, b) IN ({($1, $2)})`` would scan the table if there is one row.) ``#1`` is the
number of rows. A statement whose columns have no rows is not sent; one with very many rows is sent in parts. One name
may stand for several statements, each ended by a semicolon at the end of a line.

A DELETE takes no index hint, and the server prefers to scan a small table, which would wait for every locked row. A
LIMIT below the number of rows in the table makes it use the index. So each DELETE has the number of its rows as LIMIT,
and busy tables always contain some dummy rows (see the schema).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from tampu.engines.sql.db import Blobs, Ints, Uuids
from tampu.engines.sql.named_statements import load

MOST_ROWS = 500
"""Most rows of one statement. From a thousand on, the server turns an IN list into a join with an unknown plan."""
MOST_BYTES = 1 << 20
_PART = re.compile(r"\$(\d+)|\{([^}]*)\}|#(\d+)")
Column = Ints | Blobs
Quote = Callable[[bytes], bytes]


def escaped(value: bytes) -> bytes:
    """For our own sessions, whose character set and SQL mode we know. Half as long as hexadecimal."""
    return b"_binary'%b'" % value.replace(b"\\", b"\\\\").replace(b"'", b"\\'")


def in_hex(value: bytes) -> bytes:
    """For sessions of users, safe with any settings."""
    return b"x'%b'" % value.hex().encode()


class Statement:
    """One statement, split where values go."""

    def __init__(self, text: str) -> None:
        self._parts = list(_cut(text))

    def written(self, values: Sequence[Any], quote: Quote) -> Iterator[bytes]:
        """The statement with its values; several statements if there are many rows."""
        used = [values[n] for part in self._parts for n in part.numbers]
        sizes = {len(value) for value in used if isinstance(value, Column)}
        if not sizes:
            yield b"".join([part.written(values, quote) for part in self._parts])
            return
        rows = max(sizes)
        for start, end in _slices(rows, used):
            some = values
            if end - start < rows:
                some = [_some(value, start, end) for value in values]
            yield b"".join([part.written(some, quote) for part in self._parts])


def _some(value: Any, start: int, end: int) -> Any:
    if not isinstance(value, Column):
        return value
    kind: Any = type(value)
    return kind(value[start:end])


def _slices(rows: int, used: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """(first, end) of the rows of each part, within the limits of rows and bytes."""
    wide = [value for value in used if isinstance(value, Blobs)]
    if rows <= MOST_ROWS and sum([len(value or b"") for values in wide for value in values]) <= MOST_BYTES:
        if rows:
            yield 0, rows
        return
    start = size = 0
    for row in range(rows):
        grown = sum(len(values[row] or b"") for values in wide)
        if row > start and (row - start >= MOST_ROWS or size + grown > MOST_BYTES):
            yield start, row
            start, size = row, 0
        size += grown
    if rows > start:
        yield start, rows


class _Text:
    numbers: tuple[int, ...] = ()

    def __init__(self, text: str) -> None:
        self._text = text.encode()

    def written(self, values: Sequence[Any], quote: Quote) -> bytes:  # noqa: ARG002 - it has none
        return self._text


class _Value:
    def __init__(self, number: int) -> None:
        self.numbers: tuple[int, ...] = (number,)

    def written(self, values: Sequence[Any], quote: Quote) -> bytes:
        value = values[self.numbers[0]]
        if isinstance(value, Column):
            return b",".join(_column(value, quote))
        return literal(value, quote)


class _Count(_Value):
    """The number of rows of a column."""

    def written(self, values: Sequence[Any], quote: Quote) -> bytes:  # noqa: ARG002 - a number needs none
        return b"%d" % len(values[self.numbers[0]])


class _Rows:
    """Text repeated for each row. Formatting with % is the fastest way in Python."""

    def __init__(self, text: str) -> None:
        self._between = b" OR " if text.endswith(" OR") else b","
        self._parts = re.split(r"\$(\d+)", text.removesuffix(" OR").replace("%", "%%"))
        self.numbers: tuple[int, ...] = tuple(int(number) - 1 for number in self._parts[1::2])

    def written(self, values: Sequence[Any], quote: Quote) -> bytes:
        pattern = [self._parts[0].encode()]
        columns = []
        for number, text in zip(self.numbers, self._parts[2::2], strict=True):
            value = values[number]
            if isinstance(value, Column):
                columns.append(_column(value, quote))
                pattern.append(b"%b")
            else:
                pattern.append(literal(value, quote).replace(b"%", b"%%"))
            pattern.append(text.encode())
        row = b"".join(pattern)
        return self._between.join([row % one for one in zip(*columns, strict=True)])


def _cut(text: str) -> Iterator[_Text | _Value | _Rows | _Count]:
    end = 0
    for match in _PART.finditer(text):
        if match.start() > end:
            yield _Text(text[end : match.start()])
        if match[1]:
            yield _Value(int(match[1]) - 1)
        else:
            yield _Rows(match[2]) if match[2] else _Count(int(match[3]) - 1)
        end = match.end()
    if end < len(text):
        yield _Text(text[end:])


def _column(column: Column, quote: Quote) -> list[bytes]:
    if isinstance(column, Ints):
        return [b"NULL" if value is None else b"%d" % value for value in column]
    return [b"NULL" if value is None else quote(value) for value in column]


def literal(value: Any, quote: Quote) -> bytes:
    """A single value as an SQL literal."""
    if value is None:
        return b"NULL"
    if isinstance(value, bool):
        return b"TRUE" if value else b"FALSE"
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, float):
        return repr(value).encode()
    if isinstance(value, str):
        return b"_utf8mb4 x'%b'" % value.encode().hex().encode()
    return quote(value)


def simple(text: str) -> list[str]:
    """The statements in a text, without comments."""
    text = re.sub(r"^\s*--.*\n|\s+--.*$", "", text, flags=re.MULTILINE)
    return [part.strip() for part in re.split(r";\s*(?:\n|\Z)", text) if part.strip()]


def in_database(text: str, database: str) -> str:
    """Qualify our tables with the database, because a user's session may be in another one."""
    return re.sub(r"(?<!@)\btampu_", f"`{database}`.tampu_", text)


@cache
def statements(database: str) -> dict[str, list[Statement]]:
    """All statements by name."""
    texts = load("tampu.engines.mariadb")
    return {name: [Statement(in_database(part, database)) for part in simple(text)] for name, text in texts.items()}


__all__ = ["Blobs", "Ints", "Statement", "Uuids", "escaped", "in_database", "in_hex", "literal", "simple", "statements"]
