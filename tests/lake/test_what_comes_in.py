"""What a lake makes of hard messages, late events, days that were let go, and payloads whose shape changes."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.lake import maintenance, state
from tampu.lake.query import Lake as Looking
from tampu.maintenance.tasks import Trimmer
from tampu.model.times import SECOND
from tests.conformance.harness import FakeClock
from tests.lake.pipeline_harness import BRONZE, SILVER, Died, Rig, journal, work

DAY = 86_400
SECOND_DAY = date(2026, 1, 2)


@pytest.fixture
def clock() -> FakeClock:
    """It stands at midnight."""
    return FakeClock()


@pytest.fixture
def store(url: str, clock: FakeClock) -> Any:
    with tampu.open(url, maintenance=False, clock=clock) as queue:
        yield queue


@pytest.fixture
def rig(url: str, tmp_path: Path) -> Rig:
    return Rig(url, str(tmp_path / "jobs.lake"))


def waiting(rig: Rig) -> int:
    rows = state.table(rig.lake, state.WAITING).open().arrow().to_table()["n"].to_pylist()
    return sum(rows)


def by_queue_and_day(rig: Rig) -> dict[tuple[str, int], int]:
    counts: dict[tuple[str, int], int] = {}
    for queue, day, published in rig.rows("gold.queue_minutes", "queue", "day", "published"):
        counts[queue, day.day] = counts.get((queue, day.day), 0) + published
    return counts


def test_any_payload_reaches_the_lake_as_it_is_and_those_whose_shape_changes_are_asked_together(
    rig: Rig, store: tampu.Store
) -> None:
    """Empty, not UTF-8, 10 MB, null, text; and JSON of four shapes."""
    store.queues.put("jobs", max_payload=20_000_000)
    sent = {}
    for payload in (b"", b"\xff\xfe\x00 not utf-8", b"\x00" * 10_000_000, None, "é\u2028"):
        options: dict[str, Any] = {"content_type": "application/octet-stream"} if isinstance(payload, bytes) else {}
        message = store.publish("jobs", payload, **options)
        sent[message.id] = bytes(message.raw)
        store.ack(store.claim("jobs")[0], result=payload if isinstance(payload, str) else None)
    for person in ({"name": "Ada"}, {"name": {"first": "Ada", "last": "L"}, "age": 36}, ["Ada"], "Ada"):
        message = store.publish("people", person, type="person.seen")
        sent[message.id] = bytes(message.raw)
        store.ack(store.claim("people")[0])
    rig.run_until(SILVER)
    found = {id: bytes(payload) for id, payload, _ in rig.rows("bronze.messages", "id", "payload", "missing")}
    assert found == sent
    assert dict(rig.rows("silver.messages", "id", "payload_bytes")) == {id: len(raw) for id, raw in sent.items()}
    with Looking(rig.lake.uri).ask() as ask:
        shapes = ask.run(
            "SELECT json_extract_string(decode(payload), '$.name.first'), json_extract(decode(payload), '$.age')::INT"
            " FROM bronze.messages WHERE queue = 'people' ORDER BY ended_offset"
        ).fetchall()
    assert shapes == [(None, None), ("Ada", 36), (None, None), (None, None)]


def status_rows(rig: Rig) -> int:
    return sum(len(rig.rows(name)) for name in rig.lake.present())


def test_nothing_makes_no_rows_and_events_that_come_late_change_the_day_they_belong_to(
    rig: Rig, store: tampu.Store, clock: FakeClock
) -> None:
    (report,) = rig.pipeline().run(lambda: pytest.fail("Spark was started"))
    assert report.transitions == 0
    assert status_rows(rig) == 0

    store.publish("jobs", 1)
    clock.advance(2 * DAY)
    store.publish("jobs", 2)
    (report,) = rig.run()
    assert report.transitions == 2
    assert by_queue_and_day(rig) == {("jobs", 1): 1, ("jobs", 2): 0, ("jobs", 3): 1}

    clock.advance(-2 * DAY + 3600)  # the clock of the machine was set back
    store.publish("late", 3)
    rig.run()
    late = {("late", 1): 1, ("late", 2): 0, ("late", 3): 0}  # it waits since then
    assert by_queue_and_day(rig) == {("jobs", 1): 1, ("jobs", 2): 0, ("jobs", 3): 1, **late}


def test_days_that_were_let_go_do_not_come_back_and_what_waits_since_then_is_still_known(
    rig: Rig, store: tampu.Store, clock: FakeClock
) -> None:
    store.publish("ended", 1)
    store.ack(store.claim("ended")[0])
    store.publish_many("jobs", range(5))
    clock.advance(DAY)
    store.publish("other", 2)
    rig.run()
    maintenance.drop_days(rig.lake, SECOND_DAY)
    assert waiting(rig) == 6, "what waits is not old"

    store.ack(store.claim("other")[0])
    rig.run()
    assert {day.day for name in ("bronze.events", "gold.tenant_days") for (day,) in rig.rows(name, "day")} == {2}
    assert rig.rows("silver.messages", "queue", "state", "deliveries") == [("other", "done", 1)]

    # Silver computed anew: what the days that are gone began has not ended.
    rig.pipeline().backfill(rig.session, [SECOND_DAY], layer="silver")
    assert waiting(rig) == 5
    assert {depth for queue, depth in rig.rows("gold.queue_minutes", "queue", "depth") if queue == "jobs"} == {5}
    store.ack(store.claim("jobs")[0])
    rig.run_until(SILVER)
    assert [row for row in rig.rows("silver.attempts", "queue", "wait") if row[0] == "jobs"] == [("jobs", DAY)]


def test_the_store_keeps_what_the_lake_has_not_and_lets_go_of_what_it_has(
    rig: Rig, store: tampu.Store, clock: FakeClock
) -> None:
    """The contract of archiving: nothing past the reader's position leaves the store, whatever its age."""
    keeper = Trimmer(access.core(store), journal_us=SECOND)
    work(store)
    before = journal(store)
    with pytest.raises(Died):
        rig.run(die="gold.slo", archive_after_us=SECOND)
    clock.advance(DAY)
    while keeper.step():
        pass
    assert journal(store) == before, "the lake has all rows, but the run did not come to its end"
    assert len(list(store.messages("jobs", state="done"))) == 1
    rig.run(archive_after_us=SECOND)
    clock.advance(DAY)
    while keeper.step():
        pass
    assert journal(store) == []
    assert list(store.messages("jobs", state="done")) == []
    assert rig.rows("bronze.events", "offset", "id", "verb") == before
    work(store, 1)
    rig.run_until(BRONZE, archive_after_us=SECOND)
    assert rig.rows("bronze.events", "offset", "id", "verb") == before + journal(store)
