"""Bronze: each transition once, each end with its message, whatever became of the message since."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tampu
from tampu.lake import bronze
from tampu.lake.bronze import Slice, slices
from tampu.model.journal import Position
from tampu.model.states import TERMINAL
from tampu.stores.open_store import open_store


def events(url: str, upto: Position, after: int = 0) -> pa.Table:
    batches = [b for part, end in upto.items() for b in bronze.read_slice(url, Slice(part, after, end), "main-1")]
    return pa.Table.from_batches(batches, bronze.EVENTS.schema)


def ended(url: str, upto: Position) -> list[dict]:
    table = events(url, upto)
    ends = table.filter(pc.is_in(table["state"], pa.array([str(state) for state in TERMINAL]))).to_batches()
    rows = pa.Table.from_batches(bronze.ended_messages(url, ends, "main-1"), bronze.MESSAGES.schema)
    found: list[dict] = rows.sort_by("ended_offset").to_pylist()
    return found


@pytest.mark.parametrize(
    ("after", "upto", "most", "cut"),
    [
        ({}, {"0": 0}, 8, []),
        ({"0": 5}, {"0": 6}, 8, [Slice("0", 5, 6)]),
        (
            {"0": 0},
            {"0": 250_000},
            8,
            [Slice("0", 0, 100_000), Slice("0", 100_000, 200_000), Slice("0", 200_000, 250_000)],
        ),
        ({"0": 0}, {"0": 1_000_000}, 2, [Slice("0", 0, 500_000), Slice("0", 500_000, 1_000_000)]),
        ({"a": 3}, {"a": 3, "b": 2}, 8, [Slice("b", 0, 2)]),
    ],
)
def test_slices_cover_everything_once(after: dict, upto: dict, most: int, cut: list[Slice]) -> None:
    assert slices(after, upto, most) == cut


def test_events_are_the_journal(q: tampu.Store, url: str) -> None:
    q.publish_many("jobs", [1, 2, 3])
    q.settle([tampu.Ack(lease) for lease in q.claim("jobs", limit=2, worker="w")])
    page = q.journal()
    rows = events(url, page.latest).to_pylist()
    assert [(r["offset"], r["verb"], r["id"], r["at"], r["worker"]) for r in rows] == [
        (t.offset, t.verb, t.id, t.at, t.worker) for t in page.transitions
    ]
    assert {(r["run"], r["day"], r["tenant"]) for r in rows} == {("main-1", page.transitions[0].at.date(), "default")}
    assert [r["offset"] for r in events(url, dict.fromkeys(page.latest, 5), after=3).to_pylist()] == [4, 5]


def test_an_ended_message_comes_with_payload_result_and_error(q: tampu.Store, url: str) -> None:
    done = q.publish("jobs", {"n": 1}, type="job.do", labels={"a": "b"}, correlation_id="c")
    q.ack(q.claim("jobs")[0], result={"ok": True})
    dead = q.publish("jobs", "x", max_attempts=1)
    q.nack(q.claim("jobs")[0], "SMTP 421")
    one, two = ended(url, q.journal().latest)
    assert (one["id"], one["state"], one["payload"], one["result"]) == (done.id, "done", b'{"n":1}', '{"ok":true}')
    assert (one["type"], one["labels"], one["correlation_id"], one["missing"]) == ("job.do", [("a", "b")], "c", False)
    assert [(r["payload_bytes"], r["result_bytes"]) for r in (one, two)] == [(7, 11), (3, None)]
    assert (two["id"], two["state"], two["reason"], two["last_error"]) == (
        dead.id,
        "dead",
        "retries_exhausted",
        "SMTP 421",
    )
    assert two["created_at"] == dead.created_at


def test_what_was_removed_before_is_marked_missing(q: tampu.Store, url: str) -> None:
    q.publish("jobs", 1, type="job.do")
    q.ack(q.claim("jobs")[0])
    q.purge("jobs", state="done")
    (row,) = ended(url, q.journal().latest)
    assert (row["missing"], row["payload"], row["payload_bytes"], row["state"]) == (True, None, None, "done")


def test_each_end_of_a_replayed_message_is_a_row_of_its_own(q: tampu.Store, url: str) -> None:
    q.publish("jobs", 7)
    q.reject(q.claim("jobs")[0], error="bad")
    q.replay("jobs", where={})
    q.ack(q.claim("jobs")[0], result=1)
    first, second = ended(url, q.journal().latest)
    assert [(r["state"], r["payload"], r["result"]) for r in (first, second)] == [
        ("dead", b"7", None),
        ("done", b"7", "1"),
    ]
    assert first["last_error"] == "bad"


def test_why_a_message_was_dead_is_known_after_its_replay(q: tampu.Store, url: str) -> None:
    def dies(reason: str | None = None, error: str | None = None) -> None:
        q.publish("jobs", 1, max_attempts=1)
        (lease,) = q.claim("jobs")
        q.nack(lease, error) if reason is None else q.reject(lease, reason, error)

    dies(error="SMTP 421\ntraceback")
    dies()
    dies("oversize")
    dies("oversize", "too large")
    q.queues.put("late", on_deadline="dead")
    q.publish("late", 1, deadline=datetime(2020, 1, 1, tzinfo=UTC))
    assert q.claim("late") == []

    def whys() -> list[tuple[str | None, str | None]]:
        rows = sorted(ended(url, q.journal().latest), key=lambda row: str(row["queue"]))  # partitions have no order
        return [(row["reason"], row["last_error"]) for row in rows]

    before = whys()
    assert before == [
        ("retries_exhausted", "SMTP 421\ntraceback"),
        ("retries_exhausted", None),
        ("oversize", None),
        ("oversize", "too large"),
        ("deadline_passed", None),
    ]
    for queue in ("jobs", "late"):
        q.replay(queue, where={})
    after = whys()
    assert after == [("retries_exhausted", "SMTP 421"), *before[1:3], (None, "too large"), before[4]]


def test_messages_of_all_tenants_are_fetched_with_their_own(q: tampu.Store, url: str) -> None:
    with tampu.open(url, tenant="acme", maintenance=False) as other:
        for one in (q, other):
            one.publish("jobs", one is q)
            one.ack(one.claim("jobs")[0])
    with open_store(url) as store:
        rows = ended(url, store.bounds()[1])
    assert {(r["tenant"], r["payload"]) for r in rows} == {("default", b"true"), ("acme", b"false")}


class Asking:
    """Fetches the messages of all ends, and notes how many were asked for each time."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch, most: int = 1000) -> None:
        self.sizes: list[int] = []
        with open_store(url) as store:
            real = store.by_ids

            def by_ids(tenant: str, ids: list[str]) -> pa.Table:
                self.sizes.append(len(ids))
                if len(ids) > most:
                    raise pa.ArrowInvalid("offset overflow while concatenating arrays")
                return real(tenant, ids)

            monkeypatch.setattr(store, "by_ids", by_ids, raising=False)
            table = events(url, store.bounds()[1])
            ends = table.filter(pa.compute.equal(table["state"], "done"))
            self.rows = [row for b in bronze._fetched(store, ends, "r") for row in b.column("id").to_pylist()]


def do_all(q: tampu.Store, payloads: list[str]) -> list[str]:
    ids = [message.id for message in q.publish_many("jobs", payloads)]
    q.settle([tampu.Ack(lease) for lease in q.claim("jobs", limit=len(payloads))])
    return ids


def test_large_messages_are_fetched_a_few_at_a_time(q: tampu.Store, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bronze, "_FULL", 20_000)
    monkeypatch.setattr(bronze, "_FIRST", 4)
    ids = do_all(q, ["x" * 10_000] * 30)
    asked = Asking(url, monkeypatch)
    assert asked.rows == ids
    assert max(asked.sizes[1:]) <= 4


def test_no_fetch_can_be_larger_than_what_the_queue_takes_allows(
    q: tampu.Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small messages first, so that nothing seen so far warns of the large ones."""
    monkeypatch.setattr(bronze, "_HELD", 40_000)
    q.queues.put("jobs", max_payload=10_000)
    ids = do_all(q, ["x"] * 20 + ["x" * 9_000] * 10)
    asked = Asking(url, monkeypatch)
    assert asked.rows == ids
    assert max(asked.sizes) == 4
    q.queues.put("jobs", max_payload=1 << 30)
    assert set(Asking(url, monkeypatch).sizes) == {1}


def test_a_fetch_that_arrow_can_not_hold_is_made_in_parts(
    q: tampu.Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = do_all(q, ["x"] * 30)
    assert Asking(url, monkeypatch, most=7).rows == ids
