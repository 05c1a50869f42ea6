"""A server that became read only is left: the next call finds the one that may be written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tests.conformance.harness import payloads

READ_ONLY = {
    "PostgresEngine": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "MariaEngine": "SET SESSION TRANSACTION READ ONLY",
}


@pytest.fixture
def store(url: str) -> Iterator[tampu.Store]:
    with tampu.open(url, maintenance=False) as opened:
        opened.publish("jobs", "before")
        yield opened


def _publish(store: tampu.Store) -> None:
    store.publish("jobs", "after")


def _publish_with_a_key(store: tampu.Store) -> None:
    store.publish("jobs", "after", key="k")


def _publish_in_a_transaction(store: tampu.Store) -> None:
    with store.transaction() as tx:
        tx.publish("jobs", "after")


@pytest.mark.parametrize("call", [_publish, _publish_with_a_key, _publish_in_a_transaction])
def test_a_connection_to_a_server_that_is_read_only_is_not_kept(
    store: tampu.Store, call: Callable[[tampu.Store], None]
) -> None:
    store.stats("jobs")  # there is one for reading, too
    engine: Any = access.engine(store)
    engine._db.execute(READ_ONLY[type(engine).__name__], ())
    with pytest.raises(tampu.Unavailable, match="is read only"):
        call(store)
    assert engine._db is None
    assert not engine.readers._idle
    call(store)
    assert payloads(store.claim("jobs", limit=5)) == ["before", "after"]
