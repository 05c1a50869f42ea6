"""Pipelined statements: libpq's pipeline mode, used directly.

psycopg's own pipeline writes to the socket for every statement and runs several generators for each; in a commit of six
small statements that was half of the client's CPU time. Here statements are written together, when a result is needed.
Values are encoded in PostgreSQL's binary format by their Python type, so every parameter in our statements has a cast.
Results are read by psycopg's loaders.
"""

from __future__ import annotations

import select
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.pq import ExecStatus, Format
from psycopg.types.string import ByteaBinaryLoader

from tampu.engines.sql.db import Blobs, Ints, Uuids, Values

_HEADER = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">i").pack
_INT = struct.Struct(">q").pack
_ITEM = struct.Struct(">iq").pack
_FLOAT = struct.Struct(">d").pack
_NULL = _LENGTH(-1)
_INT8, _BYTEA, _UUID = 20, 17, 2950
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
_MOST_FORMATS = 32
_BINARY = [[Format.BINARY] * count for count in range(_MOST_FORMATS)]


def _ints(values: Sequence[int | None]) -> bytes:
    """An int8[] in binary format."""
    if not values:
        return _HEADER.pack(0, 0, _INT8, 0, 1)[:12]
    count = len(values)
    if None in values:
        items = b"".join([_NULL if value is None else _ITEM(8, value) for value in values])
        return _HEADER.pack(1, 1, _INT8, count, 1) + items
    flat: list[Any] = [8] * (2 * count)
    flat[1::2] = values
    return _HEADER.pack(1, 0, _INT8, count, 1) + struct.pack(f">{'iq' * count}", *flat)


def _blobs(values: Sequence[bytes | None], item: int = _BYTEA) -> bytes:
    """A bytea[] in binary format, or an array of another type with bytes inside."""
    if not values:
        return _HEADER.pack(0, 0, item, 0, 1)[:12]
    parts = [_HEADER.pack(1, 1, item, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(_LENGTH(len(value)))
            parts.append(value)
    return b"".join(parts)


def _uuids(column: Sequence[bytes | None]) -> bytes:
    return _blobs(column, _UUID)


_TO_BINARY: dict[type, Callable[[Any], bytes]] = {
    int: _INT,
    bool: lambda value: b"\1" if value else b"\0",
    str: str.encode,
    bytes: bytes,
    float: _FLOAT,
    Ints: _ints,
    Blobs: _blobs,
    Uuids: _uuids,
}
_KINDS: dict[str, Callable[[Sequence[Any]], bytes]] = {"i": _ints, "b": _blobs, "u": _uuids}


class _Context:
    """How results are read: as psycopg does, but ids as bytes."""

    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_loader("uuid", ByteaBinaryLoader)
    connection = None


class Wire:
    """One connection, used without psycopg's cursors, by one thread at a time."""

    def __init__(self, connection: psycopg.Connection[Any], *, prepare: bool, patience: float | None = None) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._prepare = prepare
        self.patience = patience
        """Seconds to wait for a reply of the server; None: for ever."""
        self._prepared: dict[bytes, bytes] = {}
        self._prepared_count = 0
        self._loader = Transformer(_Context())
        self._pending: deque[Answer] = deque()
        self._sync_sent = False
        """The sync message that ends the pipeline was sent."""
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)

    def enter(self) -> None:
        self._pgconn.enter_pipeline_mode()

    def send(self, text: bytes, parameters: tuple[Any, ...] = ()) -> Answer:
        """Queue a statement; it is sent when a result is needed."""
        values: list[bytes | None] = []
        for value in parameters:
            if type(value) is Values:
                values += [_KINDS[kind](column) for kind, column in value.columns()]
            else:
                values.append(None if value is None else _TO_BINARY[type(value)](value))
        formats = _BINARY[len(values)]
        if self._prepare:
            name = self._prepared.get(text)
            if name is None:
                self._prepared_count += 1
                name = self._prepared[text] = b"tampu%d" % self._prepared_count
                self._pgconn.send_prepare(name, text)
                self._pending.append(Answer(self, prepares=text))
            self._pgconn.send_query_prepared(name, values, formats, Format.BINARY)
        else:
            self._pgconn.send_query_params(text, values, None, formats, Format.BINARY)
        answer = Answer(self)
        self._pending.append(answer)
        return answer

    def flush(self) -> None:
        """Send what is queued, so that the server can begin."""
        self._pgconn.flush()

    def receive(self, wanted: Answer) -> None:
        """Read results until this one has arrived."""
        self._pgconn.send_flush_request()
        while not wanted.received:
            self._next()

    def _next(self) -> None:
        """Read the result of the oldest pending statement."""
        while True:
            result = self._result()
            if result is None:
                break
            if result.status == ExecStatus.TUPLES_OK:
                count = result.ntuples
                if count:
                    self._loader.set_pgresult(result, format=Format.BINARY)
                    self._pending[0].rows = self._loader.load_rows(0, count, tuple)
            elif result.status not in _DONE:
                if result.status == ExecStatus.PIPELINE_ABORTED:
                    raise psycopg.OperationalError("an earlier statement of the pipeline failed")
                raise psycopg.errors.error_from_result(result)
        self._pending.popleft().received = True

    def _result(self) -> psycopg.pq.abc.PGresult | None:
        pgconn = self._pgconn
        if pgconn.flush():
            self._write()
        while pgconn.is_busy():
            self._wait(self._poll)
            pgconn.consume_input()
        return pgconn.get_result()

    def _write(self) -> None:
        """The socket's buffer is full. Read while writing, or both sides would wait for each other."""
        writing = select.poll()
        writing.register(self._pgconn.socket, select.POLLIN | select.POLLOUT)
        while True:
            for _, event in self._wait(writing):
                if event & select.POLLIN:
                    self._pgconn.consume_input()
            if not self._pgconn.flush():
                return

    def _wait(self, poll: select.poll) -> list[tuple[int, int]]:
        events = poll.poll(None if self.patience is None else self.patience * 1000)
        if not events:
            self._connection.close()
            raise psycopg.OperationalError(f"the server has not answered for {self.patience:.0f} seconds")
        return events

    def answer_first(self, wanted: Answer) -> None:
        """End the pipeline, and read this result before the server commits. `leave` waits for the commit."""
        self._pgconn.send_flush_request()
        self._send_sync()
        while not wanted.received:
            self._next()

    def leave(self) -> None:
        """Wait until all statements have run; raises the first error."""
        if not self._sync_sent:
            self._send_sync()
        while self._pending:
            self._next()
        failed = self._end()
        if failed is not None:  # the commit itself
            raise psycopg.errors.error_from_result(failed)

    def abandon(self) -> None:
        """After an error: drop all pending results, so that the session can be used again."""
        if self._pgconn.status != psycopg.pq.ConnStatus.OK:
            return
        for answer in self._pending:
            if answer.prepares is not None:  # it may not have been prepared
                self._prepared.pop(answer.prepares, None)
        if not self._sync_sent:
            self._send_sync()
        self._end()

    def _send_sync(self) -> None:
        self._pgconn.pipeline_sync()
        self._sync_sent = True

    def _end(self) -> psycopg.pq.abc.PGresult | None:
        """Leave pipeline mode; returns the first error since the last result that was read."""
        failed = None
        while True:
            result = self._result()
            if result is not None and result.status == ExecStatus.PIPELINE_SYNC:
                break
            if result is not None and result.status == ExecStatus.FATAL_ERROR:
                failed = failed or result
        self._pending.clear()
        self._sync_sent = False
        self._pgconn.exit_pipeline_mode()
        return failed


class Answer:
    """The future result of a statement."""

    __slots__ = ("_wire", "prepares", "received", "rows")

    def __init__(self, wire: Wire, prepares: bytes | None = None) -> None:
        self._wire = wire
        self.prepares = prepares
        self.rows: list[Any] = []
        self.received = False

    def get(self) -> list[Any]:
        if not self.received:
            self._wire.receive(self)
        return self.rows
