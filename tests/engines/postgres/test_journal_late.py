"""Journal readers and commits that come late: nothing is skipped, nobody is held up."""

from __future__ import annotations

from typing import Any

import psycopg

import tampu
from tampu import Ack
from tests.servers.postgres import Postgres


def test_an_entry_that_commits_late_is_read_late_and_not_skipped(store: tampu.Store, server: Postgres) -> None:
    store.queues.put("jobs", max_attempts=5)
    with psycopg.connect(server.url()) as old:
        old.execute("SELECT 1")  # begun by its owner: only its owner ends it
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
    whole = store.journal().transitions
    assert [t.offset for t in whole] == [1, 2, 3]


def test_what_is_rolled_back_leaves_no_hole(store: tampu.Store, server: Postgres) -> None:
    store.queues.put("jobs", max_attempts=5)
    with psycopg.connect(server.url()) as old:
        old.execute("SELECT 1")  # begun by its owner: only its owner ends it
        with store.transaction(old) as tx:
            tx.publish("jobs", "never")
        store.publish("jobs", 1)
        old.rollback()
    store.publish("jobs", 2)
    assert [t.offset for t in store.journal().transitions] == [1, 2]


def test_the_transitions_of_a_message_are_in_order_whoever_began_first(store: tampu.Store, server: Postgres) -> None:
    """A transaction that has written before a message was published, and settles it in the end."""
    store.queues.put("jobs", max_attempts=5)
    with psycopg.connect(server.url()) as old:
        old.execute("SELECT 1")  # begun by its owner: only its owner ends it
        with store.transaction(old) as tx:
            tx.publish("other", 1)  # it has its number from here on
        message = store.publish("jobs", 1)
        lease = store.claim("jobs")[0]
        with store.transaction(old) as tx:
            tx.settle([Ack(lease)])
        old.commit()
    verbs = [t.verb for t in store.journal().transitions if t.id == message.id]
    assert verbs == ["publish", "claim", "ack"]


def test_a_transaction_left_open_is_named_by_doctor(store: tampu.Store, server: Postgres, monkeypatch: Any) -> None:
    monkeypatch.setattr("tampu.engines.postgres.checks._LONG_SECONDS", -1)
    with psycopg.connect(server.url()) as old:
        old.execute("CREATE TEMP TABLE held (n int)")
        old.execute("SELECT * FROM held")
        with psycopg.connect(server.url()) as reader:
            reader.execute("DECLARE c CURSOR FOR SELECT generate_series(1, 10)")
            reader.execute("FETCH 1 FROM c")
            assert [level for what, level, _ in store.check() if what == "transactions"] == ["warn"]
