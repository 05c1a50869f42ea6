"""One commit of the embedded engine: its journal keeps the order of a message."""

from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.broker.store import Store
from tests.conformance.harness import FakeClock, verbs


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Iterator[Store]:
    with tampu.open("memory://", maintenance=False, clock=clock) as store:
        yield store


def test_a_message_that_is_published_and_replaced_in_one_commit_has_both_in_order(store: Store) -> None:
    store.publish("jobs", 1, key="a")
    batch = [tampu.NewMessage(2, key="a"), tampu.NewMessage(3, key="b"), tampu.NewMessage(4, key="b")]
    *_, last = store.publish_many("jobs", batch)
    assert verbs(store, last.id) == ["publish", "replace"]


def test_a_publish_that_finds_only_duplicates_writes_nothing(store: Store) -> None:
    first = store.publish("jobs", 1, idempotency_key="a")
    engine: Any = access.engine(store)
    asked: list[str] = []
    engine._db.connection.set_trace_callback(asked.append)
    assert store.publish("jobs", 1, idempotency_key="a").id == first.id
    assert asked
    assert not [sql for sql in asked if sql.startswith(("INSERT", "UPDATE", "DELETE"))]
