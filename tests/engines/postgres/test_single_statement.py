"""Commits of one statement leave the tables, the journal and the answers as commits of several do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import tampu
from tampu import Ack, NewMessage, State
from tampu.broker import access
from tampu.engines.encoding import pack_seqs, unpack_seqs
from tampu.engines.port import SettleItem
from tampu.engines.postgres.single_statement import SingleStatement, ranges
from tampu.engines.sql.commit import BLOCK, unpack_claim
from tampu.engines.sql.verbs.settle import acks_of_one_claim
from tests.conformance.harness import FakeClock, payloads
from tests.servers.postgres import databases

TABLES = {
    "message": "seq, created, rank, max_attempts, expires, ahead, id, key, lane, body",
    "ready": "rank, pos, seq, lease, attempts",
    "leased": "seq, until, stamp, attempts, cancel, id, worker, lane",
    "claim": "until, seqs",
    "ended": "seq, at, attempts, state",
    "ending": "state, at, seqs",
}
"""What is compared; not what is drawn by chance, nor the numbers of entries and queues."""


def _statements(store: tampu.Store) -> list[bytes]:
    """What is sent from now on."""
    engine: Any = access.engine(store)
    sent: list[bytes] = []
    send = engine._db._wire.send

    def noted(text: bytes, parameters: tuple[Any, ...] = ()) -> Any:
        sent.append(text)
        return send(text, parameters)

    engine._db._wire.send = noted
    return sent


def test_plain_batches_are_one_statement_each(store: tampu.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tampu.engines.postgres.skip_dead_rows.SLOW_SECONDS", 60)  # else there is a question more
    store.publish("jobs", 1)
    store.ack(store.claim("jobs")[0])
    sent = _statements(store)
    store.publish_many("jobs", [1, 2, 3])
    assert len(sent) == 1
    leases = store.claim("jobs", limit=5)
    assert len(sent) == 2
    store.settle([Ack(lease) for lease in leases])
    assert len(sent) == 3
    assert store.claim("jobs") == []
    assert len(sent) == 4


def _singly(store: tampu.Store, clock: FakeClock) -> None:
    for n in range(5):
        store.publish("jobs", n)
        clock.advance(0.001 * (n % 2))
    store.settle([Ack(lease) for lease in store.claim("jobs", limit=3, worker="w")])
    store.claim("jobs", limit=5)


def _in_batches(store: tampu.Store, clock: FakeClock) -> None:
    for size in (1, 2, 3, 50):
        store.publish_many("jobs", [b"x"] * size)
        clock.advance(1)
    leases = store.claim("jobs", limit=20, worker="ü" * 40)
    store.settle([Ack(lease) for lease in reversed(leases[3:9])])
    store.settle([Ack(lease) for lease in leases[:3]])
    whole = store.claim("jobs", limit=30)
    store.settle([Ack(lease) for lease in whole])


def _after_the_clock_was_set_back(store: tampu.Store, clock: FakeClock) -> None:
    store.publish_many("jobs", [1, 2])
    clock.advance(-90)
    store.publish_many("jobs", [3, 4])
    store.settle([Ack(lease) for lease in store.claim("jobs", limit=3)])


def _not_plain(store: tampu.Store, clock: FakeClock) -> None:
    own = "0197c2a4-1111-7000-8000-000000000001"
    store.publish_many("jobs", [NewMessage(1, key="k"), NewMessage(2, ttl=50), NewMessage(3, id=own), NewMessage(4)])
    store.publish_many("jobs", [5, 6])
    leases = store.claim("jobs", limit=5)
    store.nack(leases[0], "no", delay=0)
    store.settle([Ack(lease) for lease in leases[1:4]])
    again = store.claim("jobs", limit=2)
    assert [(lease.message.payload, lease.message.attempts, lease.message.last_error) for lease in again] == [
        (6, 1, None), (1, 2, "no"),
    ]  # fmt: skip


def _in_groups(store: tampu.Store, clock: FakeClock) -> None:
    store.queues.put("jobs", group_order=True)
    store.publish_many("jobs", [NewMessage(n, group="a" if n % 2 else "b") for n in range(6)])
    for _ in range(3):
        store.settle([Ack(lease) for lease in store.claim("jobs", limit=5)])


def _left_behind(scenario: Callable[[tampu.Store, FakeClock], None]) -> dict[str, Any]:
    clock = FakeClock()
    schema = databases.empty()
    with tampu.open(databases.server.url(schema=schema), maintenance=False, clock=clock) as store:
        store.publish("jobs", 0)
        store.ack(store.claim("jobs")[0])
        scenario(store, clock)
        transitions = [
            (t.offset, t.at_us, t.queue, t.verb, t.state, t.attempt, t.type, t.worker)
            for t in store.journal().transitions
        ]
        assert all(store.get(t.id).id == t.id for t in store.journal().transitions)
        counts = store.stats("jobs").counts
    found: dict[str, Any] = {"journal": transitions, "counts": counts}
    with psycopg.connect(databases.server.url(), autocommit=True) as db:
        for table, columns in TABLES.items():
            found[table] = db.execute(f"SELECT {columns} FROM {schema}.{table} ORDER BY 1, 2").fetchall()
    return found


@pytest.mark.parametrize(
    "scenario", [_singly, _in_batches, _after_the_clock_was_set_back, _not_plain, _in_groups], ids=lambda f: f.__name__
)
def test_one_statement_leaves_what_several_leave(
    scenario: Callable[[tampu.Store, FakeClock], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = _left_behind(scenario)
    monkeypatch.setattr(SingleStatement, "run", lambda *_: None)
    several = _left_behind(scenario)
    assert at_once == several


def _across_publishes(store: tampu.Store, clock: FakeClock) -> None:
    for _ in range(6):
        store.publish_many("jobs", [b"x"] * 40)
        clock.advance(1)
    first, whole = store.claim("jobs", limit=100, worker="w"), store.claim("jobs", limit=100)
    store.settle([Ack(lease) for lease in reversed(whole)])
    store.settle([Ack(lease) for lease in first[30:60]])  # of two publishes
    store.settle([Ack(lease) for lease in first[:90:2] if lease not in first[30:60]])
    store.claim("jobs", limit=100)


def test_stretches_of_numbers_leave_what_one_entry_for_all_would(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = _left_behind(_across_publishes)
    monkeypatch.setattr(SingleStatement, "run", lambda *_: None)
    several = _left_behind(_across_publishes)
    assert len(at_once["claim"]) > len(several["claim"])
    assert len(at_once["ending"]) > len(several["ending"])
    for found in (at_once, several):
        found["claim"] = sorted(seq for _, seqs in found["claim"] for seq in unpack_claim(seqs))
        found["ending"] = sorted((state, at, seq) for state, at, seqs in found["ending"] for seq in unpack_seqs(seqs))
    assert at_once == several


def test_a_claim_of_several_stretches_comes_back_in_its_order(url: str) -> None:
    clock = FakeClock()
    with tampu.open(url, maintenance=False, clock=clock) as store:
        store.publish_many("jobs", range(40))
        store.publish_many("jobs", range(40, 80))
        leases = store.claim("jobs", limit=60, lease=30)
        assert payloads(leases) == list(range(60))
        store.settle([Ack(lease) for lease in leases[10:50]])
        clock.advance(30)
        assert payloads(store.claim("jobs", limit=100)) == [*range(60, 80), *range(10), *range(50, 60)]


def test_the_journal_names_what_was_claimed_wherever_it_lies_on_the_disk(url: str, db: psycopg.Connection[Any]) -> None:
    clock = FakeClock()
    with tampu.open(url, maintenance=False, clock=clock) as store:
        engine: Any = access.engine(store)
        for _ in range(2):  # the second goes on where the first ends: one stretch, of two times
            store.publish_many("jobs", [b"x"] * BLOCK)
            clock.advance(1)
        assert len(store.claim("jobs", limit=BLOCK - 10)) == BLOCK - 10
        db.execute(
            f"UPDATE {engine.place.schema}.message SET q = q WHERE seq < %s", (2 * BLOCK,)
        )  # they lie behind now
        end = store.journal(limit=10_000).position
        leases = store.claim("jobs", limit=20)
        assert [t.id for t in store.journal(after=end).transitions] == [lease.id for lease in leases]


def test_stretches_are_cut_where_a_number_is_missing() -> None:
    assert ranges([5]) == [[5]]
    assert ranges(list(range(5, 50))) == [list(range(5, 50))]
    assert ranges([*range(10), *range(12, 30)]) == [list(range(10)), list(range(12, 30))]
    scattered = [[1, 3], list(range(0, 90, 2)), [*range(20), *range(50_000, 50_020)]]
    assert [ranges(seqs) for seqs in scattered] == [[seqs] for seqs in scattered], "many pieces, or far apart"


def test_a_claim_s_row_goes_with_the_acks_of_all_of_it(store: tampu.Store, db: psycopg.Connection[Any]) -> None:
    engine: Any = access.engine(store)
    store.publish("jobs", 0)
    store.ack(store.claim("jobs")[0])
    for batches in ([100], [1] * 7, [2], [1], [4, 1, 4]):
        for size in batches:
            store.publish_many("jobs", [b"x"] * size)
        leases = store.claim("jobs", limit=1000)
        seqs = [int(lease.receipt.rpartition("/")[2].partition(".")[0], 16) for lease in leases]
        rows = db.execute(f"SELECT seqs FROM {engine.place.schema}.claim").fetchall()
        assert [bytes(row[0]) for row in rows] == [pack_seqs(seqs)]
        store.settle([Ack(lease) for lease in leases])
        assert db.execute(f"SELECT seqs FROM {engine.place.schema}.claim").fetchall() == []


def test_a_queue_whose_messages_are_not_plain_is_not_tried_each_time(store: tampu.Store) -> None:
    store.publish("jobs", 0)
    store.ack(store.claim("jobs")[0])
    sent = _statements(store)
    tried = []
    for n in range(5):
        store.publish("jobs", n, key="k")
        sent.clear()
        store.ack(store.claim("jobs")[0])
        tried.append(sum(b"AS delay" in text for text in sent))
    assert tried == [1, 0, 0, 0, 0]


def test_a_receipt_that_is_lost_among_acks_takes_no_other_along(store: tampu.Store) -> None:
    store.publish_many("jobs", [1, 2, 3])
    leases = store.claim("jobs", limit=3)
    store.ack(leases[1])
    store.release(leases[2])
    outcomes = store.settle([Ack(lease) for lease in leases])
    assert [outcome.state for outcome in outcomes] == [State.DONE, State.DONE, None]
    assert isinstance(outcomes[2].error, tampu.LeaseLost)
    assert payloads(store.claim("jobs")) == [3]
    assert [t.verb for t in store.journal().transitions].count("ack") == 2


@pytest.mark.parametrize(
    "receipts",
    [
        ["jobs/1.a", "jobs/1.a"],
        ["jobs/1.a", "jobs/2.b"],
        ["jobs/1.a", "other/2.a"],
        ["jobs/1.a\njobs/2.a", "x.a"],
        ["jobs/1.a", "jobs/ 2.a"],
        ["jobs/1.a", "jobs/0x2.a"],
        ["jobs/1.a", f"jobs/{1 << 63:x}.a"],
        ["jobs/1.", "jobs/2."],
        ["jobs/1.a\n"],
        [""],
    ],
)
def test_what_is_not_surely_of_one_claim_goes_one_by_one(receipts: list[str]) -> None:
    assert acks_of_one_claim([SettleItem("ack", "jobs", receipt) for receipt in receipts]) is None


def test_acks_of_one_claim_are_taken_apart() -> None:
    items = [SettleItem("ack", "jobs", "jobs/1f.a0"), SettleItem("ack", "jobs", "jobs/2.a0")]
    assert acks_of_one_claim(items) == (0xA0, [0x1F, 2])
    assert acks_of_one_claim([*items, SettleItem("nack", "jobs", "jobs/3.a0")]) is None
    assert acks_of_one_claim([*items, SettleItem("ack", "jobs", "jobs/3.a0", result=b"1")]) is None
