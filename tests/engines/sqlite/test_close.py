"""Closing a store that others read: a connection is never closed under who uses it, which would crash the process."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from tampu.engines.sqlite.engine import SqliteEngine

_closing = threading.Event()
_reading = threading.Event()


class Watched(sqlite3.Connection):
    """Is not closed before another thread has begun to read, with this one or with another."""

    reader: threading.Thread | None = None
    closed_by: threading.Thread | None = None

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql == "BEGIN":
            self.reader = threading.current_thread()
            _reading.set()
        return super().execute(sql, *parameters)

    def close(self) -> None:
        _closing.set()
        assert _reading.wait(60)
        self.closed_by = threading.current_thread()
        super().close()


def test_a_connection_is_closed_by_who_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Watched] = []

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        opened.append(Watched(*args, **options))
        return opened[-1]

    engine = SqliteEngine(str(tmp_path / "jobs.db"), connect=connect)
    engine.revision()
    _reading.clear()
    may_read, look = threading.Event(), engine._check_usable

    def looked() -> None:
        look()
        may_read.set()
        assert _closing.wait(60)

    monkeypatch.setattr(engine, "_check_usable", looked)
    reader = threading.Thread(target=engine.revision)
    reader.start()
    assert may_read.wait(60)
    engine.close()
    reader.join(60)
    _, idle, late = opened
    assert (idle.closed_by, late.reader, late.closed_by) == (threading.current_thread(), reader, reader)
