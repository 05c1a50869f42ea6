"""Names of batches on the embedded file: one row, kept for a while, whatever becomes of the messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu.engines import port
from tampu.engines.port import Item, Publish, Trim
from tampu.engines.sqlite import SqliteEngine
from tampu.model.message import BYTES, Body, State
from tampu.model.times import SECOND
from tampu.model.values import pack_payload
from tampu.testing import FakeClock

NAME = "a-name-drawn-at-random"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(clock: FakeClock) -> Iterator[SqliteEngine]:
    made = SqliteEngine(clock=clock)
    yield made
    made.close()


def batch(count: int, *, payload: bytes = b"x", simple: bool = True, id: str | None = None) -> Publish:
    one = Item(Body("message", payload, BYTES), pack_payload("message", payload, BYTES), 3, id=id)
    items = [one] * count
    return Publish("default", "jobs", items, simple=simple, batch_id=NAME, batch_id_us=60 * SECOND)


def run(engine: SqliteEngine, call: port.Call) -> Any:
    return engine.run([call])[0]


def rows(engine: SqliteEngine) -> int:
    return int(engine._db.execute("SELECT count(*) FROM tampu_idempotency").fetchone()[0])


def end_all(engine: SqliteEngine) -> None:
    """Work all there is, and remove what is left of it."""
    leases = run(engine, port.Claim("default", [port.QueueClaim("jobs", SECOND)], 100))
    engine.run([port.Settle("default", [port.SettleItem("ack", "jobs", lease.receipt) for lease in leases])])
    engine.run([Trim({}, -SECOND, SECOND, 1000)])
    assert engine.get("default", leases[0].id) is None


@pytest.mark.parametrize("simple", [True, False])
def test_messages_that_are_gone_are_still_the_answer(engine: SqliteEngine, simple: bool) -> None:
    first = run(engine, batch(100, simple=simple))
    end_all(engine)
    again = run(engine, batch(100, simple=simple))
    assert [m.id for m in again] == [m.id for m in first]
    assert {(m.state, m.duplicate) for m in again} == {(State.DONE, True)}


def test_an_id_of_its_own_is_answered_when_the_message_is_gone(engine: SqliteEngine) -> None:
    own = "01890000-0000-7000-8000-000000000001"
    engine.run([batch(1, simple=False, id=own)])
    end_all(engine)
    (again,) = run(engine, batch(1, simple=False, id=own))
    assert (again.id, again.duplicate) == (own, True)


def test_a_name_is_one_row_and_goes_when_its_time_is_over(engine: SqliteEngine, clock: FakeClock) -> None:
    engine.run([batch(100)])
    assert rows(engine) == 1
    clock.advance(60)
    later = run(engine, batch(100))
    assert not any(m.duplicate for m in later)
    clock.advance(60)
    engine.run([Trim({}, SECOND, SECOND, 1000)])
    assert rows(engine) == 0


@pytest.mark.parametrize("other", [batch(2), batch(3, payload=b"y")])
def test_another_batch_under_the_name_is_refused(engine: SqliteEngine, other: Publish) -> None:
    engine.run([batch(3)])
    refused = run(engine, other)
    assert isinstance(refused, tampu.IdempotencyConflict)
    assert refused.field == "once"


def test_names_do_not_move_house(engine: SqliteEngine) -> None:
    engine.run([batch(3)])
    assert rows(engine) == 1
    assert engine.export_idempotency_keys("default", None, 10).items == []
