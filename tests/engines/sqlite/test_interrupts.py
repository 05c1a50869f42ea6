"""Interrupts, forks and links: what must not leave a lock, a transaction or a number behind."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.engines import port
from tampu.engines.sqlite import SqliteEngine
from tests.conformance.harness import until


class Interrupted(sqlite3.Connection):
    """Ctrl-C comes when the statement has just been carried out."""

    after: str | None = None

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        cursor = super().execute(sql, *parameters)
        if sql == Interrupted.after:
            Interrupted.after = None
            raise KeyboardInterrupt
        return cursor


def _connect(path: str, **options: Any) -> sqlite3.Connection:
    return sqlite3.connect(path, factory=Interrupted, **options)


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "COMMIT"])
def test_an_interrupt_leaves_no_transaction_open(tmp_path: Path, statement: str) -> None:
    engine = SqliteEngine(str(tmp_path / "jobs.db"), connect=_connect)
    other = SqliteEngine(str(tmp_path / "jobs.db"))
    try:
        for act in (lambda: engine.run([port.Sweep(1)]), lambda: engine.transaction(None).__enter__()):
            Interrupted.after = statement
            try:
                act()
            except KeyboardInterrupt:
                pass
            else:
                Interrupted.after = None
                continue
            assert not engine._db.active
            assert other.run([port.Sweep(1)])
            assert engine.run([port.Sweep(1)])
    finally:
        engine._db.rollback()
        engine.close()
        other.close()


def test_queues_of_a_transaction_that_was_rolled_back_are_not_remembered(tmp_path: Path) -> None:
    with tampu.open(tmp_path / "jobs.db", maintenance=False) as store:
        own = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        own.execute("BEGIN IMMEDIATE")
        for payload in (1, 2):
            with store.transaction(own) as tx:
                tx.publish("new", payload)
        own.execute("ROLLBACK")
        own.close()
        with store.transaction() as tx:
            tx.execute("SAVEPOINT mine")
            tx.publish("new", 3)
            tx.execute("ROLLBACK TO mine")
            tx.publish("other", 4)
            tx.publish("new", 5)
        assert store.queues.list() == ["new", "other"]
        assert [m.payload for m in store.messages("new")] == [5]
        assert [m.payload for m in store.messages("other")] == [4]


def test_what_follows_a_transaction_that_sqlite_ended_is_not_committed_alone(tmp_path: Path) -> None:
    with tampu.open(tmp_path / "jobs.db", maintenance=False) as store:

        def ended_inside() -> None:
            with store.transaction() as tx:
                tx.execute("CREATE TABLE orders (n)")
                tx.connection.execute("ROLLBACK")  # as a full disk does
                tx.execute("CREATE TABLE others (n)")

        with pytest.raises(tampu.Unavailable):
            ended_inside()
        own = sqlite3.connect(tmp_path / "jobs.db")
        assert own.execute("SELECT count(*) FROM sqlite_master WHERE name IN ('orders', 'others')").fetchone() == (0,)
        own.close()


def test_a_file_opened_through_a_link_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "jobs.db")
    with tampu.open(tmp_path / "link.db", maintenance=False) as store:
        own = sqlite3.connect(tmp_path / "link.db", isolation_level=None)
        with store.transaction(own) as tx:
            tx.publish("jobs", 1)
        own.close()
        assert not (tmp_path / "link.db-gate").exists()
        assert (tmp_path / "real" / "jobs.db-gate").exists()


def test_the_bell_of_a_closed_queue_writes_to_no_other_file(tmp_path: Path) -> None:
    store = tampu.open(tmp_path / "jobs.db", maintenance=False)
    own = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    with store.transaction(own) as tx:
        tx.publish("jobs", 1)
        store.close()
        # The next files get the numbers that the queue's own had.
        handles = [os.open(tmp_path / f"mine{n}", os.O_RDWR | os.O_CREAT) for n in range(8)]
        for handle in handles:
            os.write(handle, b"data")
    own.close()
    assert [os.pread(handle, 4, 0) for handle in handles] == [b"data"] * 8
    for handle in handles:
        os.close(handle)


_FORKS = """
import os, sys, tampu
from tampu.broker import access
store = tampu.open(sys.argv[1])
while not access.engine(store)._peers._leading:
    store.publish("jobs", 1)
gate = access.engine(store)._peers.write_lock()
gate.__enter__()
child = os.fork()
if child == 0:
    os.read(0, 1)
    os._exit(0)
print(child, flush=True)
os.read(0, 1)
"""


def test_a_forked_child_does_not_keep_the_locks_of_a_parent_that_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    read, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _FORKS, str(file)], stdin=read, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline()
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        with tampu.open(file) as store:
            engine: Any = access.engine(store)
            engine._peers._patience = 2.0
            store.publish("jobs", 2)
            until(lambda: engine._peers._leading)
        os.write(write, b"xx")  # the child ends
        os.close(write)
        os.close(read)
