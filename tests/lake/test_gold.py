"""Gold in the cases that matter most: ends of minutes, days without events, failures that look alike, objectives."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tampu.lake import jobs
from tampu.lake.objectives import Objective
from tampu.lake.tables import days, facts, queues
from tests.lake import reference
from tests.lake.journals import MIDNIGHT, Telling
from tests.lake.tables_in_memory import Keeping, assert_same, collected, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
Gold = dict[str, list[Row]]
DAY = 86_400


@pytest.fixture(scope="module")
def told() -> Telling:
    t = Telling()
    t.story("a", ("publish", -90), ("claim", 70), ("ack", 71))
    t.story("b", ("publish", -60), ("claim", 0), ("ack", 1))
    t.story("c", ("publish", 60.5), ("claim", 61))
    t.tell("c", "nack", 62, detail="no file 7", fingerprint="f1")
    t.story("d", ("publish", 62), ("claim", 63))
    t.tell("d", "reject", 64, detail="no file 8", fingerprint="f1")
    t.story("e", ("publish", 65), ("claim", 66))
    t.tell("e", "nack", 67)
    t.story("f", ("publish", 68), ("claim", 69), ("reap", 70))
    t.story("h", ("adopt", 300), queue="moved")
    t.tell("i", "adopt", 301, state="dead", queue="moved")
    t.tell("j", "adopt", 302, state="done", queue="moved")
    t.story("g", ("publish", 2 * DAY + 59.999999))
    return t


@pytest.fixture(scope="module")
def kept(told: Telling) -> Gold:
    """After two runs: `f` is ready from the first day on, and nothing happens on the second."""
    found = Keeping()
    found.run_all(told.events, told.messages, [len(told.events) - 1])
    return found.gold()


def minute(kept: Gold, at: datetime) -> Row | None:
    found = [r for r in kept["gold.queue_minutes"] if r["minute"] == at]
    return found[0] if found else None


def test_every_table_equals_the_reference(kept: Gold, told: Telling) -> None:
    for name, expected in reference.gold(told.events, told.messages).items():
        assert_same(name, kept[name], expected)


def test_depth_and_age_are_those_at_the_end_of_the_minute(kept: Gold) -> None:
    found = [minute(kept, MIDNIGHT + timedelta(minutes=n)) for n in (-3, -2, -1, 0, 1)]
    assert [(m["depth"], m["oldest"]) if m else None for m in found] == [
        None,
        (1, 90.0 - 60),
        (2, 90.0),  # b is claimed at midnight sharp: that is the next minute
        (1, 150.0),
        (1, 50.0),  # only f, ready again at 70 s
    ]


def test_backlog_gives_a_row_to_every_minute_of_a_day_without_events(kept: Gold) -> None:
    quiet = MIDNIGHT.date() + timedelta(days=1)
    found = [r for r in kept["gold.queue_minutes"] if (r["day"], r["queue"]) == (quiet, "jobs")]
    assert len(found) == 1440
    assert {(r["published"], r["claimed"], r["depth"], r["wait_p50"]) for r in found} == {(0, 0, 1, None)}


def test_rows_end_with_the_minute_of_the_newest_event(kept: Gold) -> None:
    last = max(kept["gold.queue_minutes"], key=lambda r: r["minute"])
    assert (last["minute"], last["published"], last["depth"]) == (MIDNIGHT + timedelta(days=2), 1, 2)


def test_failures_are_told_apart_by_their_look_or_else_by_how_they_ended(kept: Gold) -> None:
    found = {r["fingerprint"]: r for r in kept["gold.failures"]}
    assert set(found) == {"f1", "nack", "reap"}
    alike = found["f1"]
    assert (alike["attempts"], alike["messages"], alike["dead"], alike["error"]) == (2, 2, 1, "no file 8")
    assert (alike["types"], alike["sample_ids"]) == (["job.run"], ["c", "d"])


def test_failures_of_a_day_are_as_many_as_the_minutes_count(kept: Gold) -> None:
    assert sum(r["attempts"] for r in kept["gold.failures"]) == 4
    assert sum(r["failed"] for r in kept["gold.queue_minutes"]) == 4


def test_percentiles_of_many_deliveries_are_within_the_error_that_is_stated(spark: SparkSession) -> None:
    """Ten minutes of a thousand deliveries each, merged into an hour: the rank is off by less than 0.3 %."""
    count, at = 10_000, MIDNIGHT + timedelta(hours=12)
    attempts = [
        {"id": str(n), "queue": "jobs", "type": "t", "claimed_at": at, "ended_at": at + timedelta(minutes=n % 10),
         "wait": n / 1e3, "run": (count - n) / 1e3, "outcome": "ack", "day": at.date(), "tenant": "default"}
        for n in range(count)
    ]  # fmt: skip
    with jobs.configured(spark, 0):
        minutes = facts.deliveries(spark, frame("silver.attempts", attempts))
        kept = frame("_facts.deliveries", collected("_facts.deliveries", minutes))
        (hour,) = collected("gold.queue_hours", queues.queue_hours(spark, frame("gold.queue_minutes", []), kept))
    for what in ("wait", "run"):
        for p in (50, 95, 99):
            assert abs(hour[f"{what}_p{p}"] / (count / 1e3) - p / 100) < 0.003


def test_messages_that_came_from_another_store_count_as_backlog_and_not_as_work(kept: Gold) -> None:
    found = [r for r in kept["gold.queue_minutes"] if r["queue"] == "moved"]
    assert {(r["depth"], r["published"], r["done"], r["dead"]) for r in found} == {(1, 0, 0, 0)}
    assert not any(r["queue"] == "moved" for r in kept["gold.slo"])


def test_objective_of_a_queue_goes_before_the_general_one(spark: SparkSession) -> None:
    def ended(queue: str, state: str, total: float) -> Row:
        return {"tenant": "default", "day": date(2026, 1, 1), "queue": queue, "state": state, "total": total,
                "deliveries": 1}  # fmt: skip

    messages = [
        *(ended("emails", "done", total) for total in (1.0, 30.0, 30.1, 99.0)),
        ended("emails", "expired", 5.0),
        ended("reports", "done", 59.0),
        ended("reports", "dead", 1.0),
        ended("quiet", "cancelled", 1.0),
    ]
    given = [
        Objective(queue="emails", objective="latency", target=0.75, within=30),
        Objective(queue="*", objective="success", target=1.0),
    ]
    with jobs.configured(spark, 0):
        named = frame("silver.messages", messages).selectExpr("*", "'one' AS _file")
        ends = facts.ends(spark, named, frame("_facts.ends", []), given)
        rows = collected("gold.slo", days.slo(spark, ends, given))
    found = {(r["queue"], r["objective"]): r for r in rows}
    assert len(found) == 6
    emails = found["emails", "latency"]
    assert (emails["good"], emails["total"], emails["ratio"], emails["burn"]) == (2, 4, 0.5, 2.0)
    assert found["reports", "latency"]["within"] == 60.0
    # Nothing may fail: what burns is counted in messages, so that it stays a number.
    assert [found[queue, "success"]["burn"] for queue in ("emails", "reports", "quiet")] == [1.0, 1.0, None]
