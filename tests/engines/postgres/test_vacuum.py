"""Dead rows at the front of the index go when claims have stepped over many, also while nothing is published."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import tampu
from tampu.broker import access
from tests.conformance.harness import until


def _vacuums(db: psycopg.Connection[Any], store: tampu.Store) -> int:
    engine: Any = access.engine(store)
    row = db.execute(
        "SELECT vacuum_count FROM pg_stat_all_tables WHERE schemaname = %s AND relname = 'ready'",
        (engine.place.schema,),
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_a_backlog_that_is_only_drained_is_vacuumed(
    store: tampu.Store, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish_many("jobs", [b"x"] * 20)
    before = _vacuums(db, store)
    monkeypatch.setattr("tampu.engines.postgres.vacuum.STEP_SECONDS", 60)
    store.claim("jobs", limit=10)
    store.claim("jobs", limit=10)
    until(lambda: _vacuums(db, store) > before)
