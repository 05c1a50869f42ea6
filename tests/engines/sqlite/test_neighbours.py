"""Calls that share a commit: one that SQLite refuses fails alone."""

from __future__ import annotations

import sqlite3

import pytest

import tampu
from tampu.engines.port import PutDocument
from tampu.engines.sqlite import SqliteEngine


def test_a_call_that_is_too_big_for_the_store_fails_alone() -> None:
    engine = SqliteEngine()
    engine._db.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 5_000)
    one, refused, two = engine.run(
        [PutDocument("k", "t", name, value) for name, value in (("a", b"1"), ("b", bytes(10_000)), ("c", b"3"))]
    )
    assert isinstance(refused, tampu.StorageError)
    assert not isinstance(one, tampu.TampuError)
    assert not isinstance(two, tampu.TampuError)
    assert [d.name for d in engine.documents("k", "t")] == ["a", "c"]
    with pytest.raises(tampu.StorageError, match="too big"):
        engine.run([PutDocument("k", "t", "b", bytes(10_000))])
    engine.close()


def test_a_call_that_breaks_a_rule_of_the_tables_fails_alone() -> None:
    engine = SqliteEngine()
    engine._db.execute("CREATE TRIGGER no BEFORE INSERT ON tampu_document WHEN new.name = 'b'"
                       " BEGIN SELECT RAISE(ABORT, 'not this one'); END")  # fmt: skip
    one, refused, two = engine.run([PutDocument("k", "t", name, b"1") for name in "abc"])
    assert [isinstance(reply, tampu.StorageError) for reply in (one, refused, two)] == [False, True, False]
    assert [d.name for d in engine.documents("k", "t")] == ["a", "c"]
    engine.close()
