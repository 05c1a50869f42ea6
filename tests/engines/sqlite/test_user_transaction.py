"""Transactions joined on a connection of the user's, however it is set up."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu import InvalidState
from tampu.broker import access
from tampu.broker.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with tampu.open(tmp_path / "jobs.db", maintenance=False) as store:
        yield store


@pytest.fixture
def own(tmp_path: Path, store: Store) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(tmp_path / "jobs.db")
    yield db
    db.close()


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize("rows", [None, sqlite3.Row, _as_dict])
@pytest.mark.parametrize("text", [str, bytes])
def test_the_form_of_the_user_s_rows_is_theirs(store: Store, own: sqlite3.Connection, rows: Any, text: Any) -> None:
    store.publish("jobs", 1)
    (lease,) = store.claim("jobs")
    own.row_factory, own.text_factory = rows, text
    with store.transaction(own) as tx:
        tx.ack(lease)
        tx.publish("new", 2, key="k")
        assert (own.row_factory, own.text_factory) == (rows, text)
        row = own.execute("SELECT 'a' AS name").fetchone()
    assert (row[0] if rows is None else row["name"]) == ("a" if text is str else b"a")
    assert (store.stats("jobs").done, store.stats("new").ready) == (1, 1)


def test_a_call_beside_a_joined_transaction_is_refused_at_once(store: Store, own: sqlite3.Connection) -> None:
    with store.transaction(own) as tx:
        tx.publish("jobs", 1)
        with store.transaction(own) as inner:
            inner.publish("jobs", 2)
        with pytest.raises(InvalidState):
            store.publish("jobs", 3)
    store.publish("jobs", 4)
    assert store.stats("jobs").ready == 3


class _Interrupted(set[int]):
    def add(self, thread: int) -> None:
        super().add(thread)
        raise KeyboardInterrupt


def test_an_interrupt_at_the_start_of_a_transaction_leaves_the_thread_outside(store: Store) -> None:
    access.core(store).in_transaction = _Interrupted()
    with pytest.raises(KeyboardInterrupt), store.transaction():
        pass
    store.publish("jobs", 1)
