"""Journal readers and commits that come late: nothing is skipped, nobody is delayed, nothing is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu import Ack
from tampu.broker import access
from tests.servers.mariadb import MariaDb


@pytest.fixture
def old(store: tampu.Store, url: str, server: MariaDb) -> Iterator[Any]:
    """A connection whose transaction has begun: only its owner ends it."""
    store.queues.put("jobs", max_attempts=5)
    begin = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
    with server.connect(url.rpartition("/")[2], autocommit=False, init_command=begin) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM tampu_meta")
        yield connection


def test_an_entry_that_commits_late_is_read_late_and_not_skipped(store: tampu.Store, old: Any) -> None:
    with store.transaction(old) as tx:
        late = tx.publish("jobs", "early in, late out")
    first = store.publish("jobs", 1)
    page = store.journal()
    assert [t.id for t in page.transitions] == [first.id], "the open transaction holds nobody up"
    second = store.publish("jobs", 2)
    after = store.journal(after=page.position)
    assert [t.id for t in after.transitions] == [second.id]
    old.commit()
    last = store.journal(after=after.position)
    assert [t.id for t in last.transitions] == [late.id]
    assert [t.offset for t in store.journal().transitions] == [1, 2, 3]


def test_what_is_rolled_back_leaves_no_hole(store: tampu.Store, old: Any) -> None:
    with store.transaction(old) as tx:
        tx.publish("jobs", "never")
    store.publish("jobs", 1)
    old.rollback()
    store.publish("jobs", 2)
    assert [t.offset for t in store.journal().transitions] == [1, 2]


def test_the_transitions_of_a_message_are_in_order_whoever_began_first(store: tampu.Store, old: Any) -> None:
    """A transaction that has written before a message was published, and settles it in the end."""
    store.queues.put("other", max_attempts=5)
    with store.transaction(old) as tx:
        tx.publish("other", 1)  # it has its number from here on
    message = store.publish("jobs", 1)
    lease = store.claim("jobs")[0]
    with store.transaction(old) as tx:
        tx.settle([Ack(lease)])
    old.commit()
    verbs = [t.verb for t in store.journal().transitions if t.id == message.id]
    assert verbs == ["publish", "claim", "ack"]


def test_what_a_reader_gets_is_on_disk(store: tampu.Store, url: str) -> None:
    """InnoDB shows a commit before its log is flushed: a reader commits once itself before it tells what it saw."""
    engine: Any = access.engine(store)
    asked: list[str] = []
    with tampu.open(url, maintenance=False) as reader:
        theirs: Any = access.engine(reader)
        ask = theirs.readers.run

        def heard(work: Any) -> Any:
            def recorded(db: Any) -> Any:
                send = db.send

                def listen(name: str, *values: Any) -> None:
                    asked.append(name)
                    send(name, *values)

                db.send = listen
                try:
                    return work(db)
                finally:
                    db.send = send

            return ask(recorded)

        theirs.readers.run = heard
        store.publish("jobs", 1)
        engine.journal(None, 10, None)  # numbered by somebody else, whose commit may not be on disk yet
        for _ in range(3):
            assert len(reader.journal().transitions) == 1
    assert asked == ["seal_journal"], "once for what is new"


def test_a_transaction_left_open_is_named_by_doctor(store: tampu.Store, old: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("tampu.engines.mariadb.checks._LONG_SECONDS", -1)
    assert [level for what, level, _ in store.check() if what == "transactions"] == ["warn"]
    old.rollback()
