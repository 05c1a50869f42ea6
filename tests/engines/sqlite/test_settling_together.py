"""Whole claims that are acked in one commit, by several callers, under ids of the engine and of the user's own."""

from __future__ import annotations

import sqlite3
import uuid
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.engines.port import Settle, SettleItem
from tampu.model.errors import LeaseLost
from tampu.model.message import State
from tampu.testing import FakeClock

COUNT = 40


def _claims(store: tampu.Store, *, own: bool) -> list[list[tampu.Lease]]:
    for _ in range(3):
        ids = [str(uuid.uuid4()) if own else None for _ in range(COUNT)]
        store.publish_many("jobs", [tampu.NewMessage(n, id=id) for n, id in enumerate(ids)])
    return [store.claim("jobs", limit=COUNT) for _ in range(3)]


def _settle(leases: list[tampu.Lease]) -> Settle:
    return Settle("default", [SettleItem("ack", "jobs", lease.receipt) for lease in leases])


@pytest.mark.parametrize("own", [False, True], ids=["ids of the engine", "ids of our own"])
def test_each_caller_gets_its_own_outcomes(own: bool) -> None:
    with tampu.open("memory://", maintenance=False) as store:
        core: Any = access.core(store)
        first, second, third = _claims(store, own=own)
        lost = [SettleItem("ack", "jobs", lease.receipt[:-1] + "z") for lease in third]
        replies = core.engine.run(
            [_settle(first), _settle(second[:3]), _settle(first), _settle(second), Settle("default", lost), _settle([])]
        )
        for leases, outcomes in zip((first, second[:3], first, second), replies, strict=False):
            assert [(o.id, o.state) for o in outcomes] == [(lease.id, State.DONE) for lease in leases]
        assert [type(o.error) for o in replies[4]] == [tampu.InvalidMessage] * COUNT
        assert replies[5] == []
        counts = store.stats("jobs").counts
        assert (counts[State.DONE], counts[State.LEASED]) == (2 * COUNT, COUNT)
        transitions = [t for t in store.journal(limit=1000).transitions if t.verb == "ack"]
        assert sorted(t.id for t in transitions) == sorted(lease.id for lease in [*first, *second]), "each once"


def test_a_claim_that_ran_out_is_lost_beside_one_that_did_not() -> None:
    clock = FakeClock()
    with tampu.open("memory://", maintenance=False, clock=clock) as store:
        core: Any = access.core(store)
        first, second, _ = _claims(store, own=True)
        for lease in first:
            store.extend(lease, 3600)
        clock.advance(600)
        again = store.claim("jobs", limit=COUNT)
        assert again
        replies = core.engine.run([_settle(first), _settle(second)])
        assert all(outcome.state is State.DONE for outcome in replies[0])
        taken = {lease.id for lease in again} & {lease.id for lease in second}
        lost = {lease.id for lease, o in zip(second, replies[1], strict=True) if isinstance(o.error, LeaseLost)}
        assert taken <= lost


def test_ids_of_a_batch_are_looked_up_with_one_statement() -> None:
    with tampu.open("memory://", maintenance=False) as store:
        core: Any = access.core(store)
        first, second, _ = _claims(store, own=True)
        asked: list[str] = []
        db: sqlite3.Connection = core.engine._db.connection
        db.set_trace_callback(asked.append)
        core.engine.run([_settle(first), _settle(second)])
        db.set_trace_callback(None)
        assert sum("FROM json_each" in sql and "tampu_message m" in sql for sql in asked) == 2
