"""What the insights say is what the rows of the lake say."""

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from tampu.lake.insights import gather
from tampu.lake.query import Lake
from tampu.lake.report import page
from tampu.lake.report.charts import bar, ceiling, compact, percent, seconds, sparkline
from tampu.model.errors import InvalidMessage
from tests.lake import sample
from tests.lake.sample import START, minute


def attempt(n: int, wait: float | None, run: float | None, **more: object) -> dict[str, object]:
    at = START + timedelta(minutes=n)
    return {
        "id": str(n), "queue": "orders", "type": "t", "ended_at": at, "claimed_at": at, "wait": wait, "run": run,
        "worker": "w", "outcome": "ack", **more,
    }  # fmt: skip


def test_empty_lake_has_nothing_to_say(tmp_path: Path):
    found = gather(Lake(tmp_path), now=datetime(2026, 3, 5, 12, tzinfo=UTC))
    assert found.empty
    assert (found.since, found.until) == (datetime(2026, 2, 27, tzinfo=UTC), datetime(2026, 3, 5, 12, tzinfo=UTC))
    assert (found.queues, found.series.at, found.week, found.totals.published) == ([], [], [], 0)


def test_one_row_is_enough(tmp_path: Path):
    sample.write(tmp_path, "gold.queue_minutes", [minute(0, published=5, depth=5, oldest=30.0)])
    found = gather(Lake(tmp_path), days=1)
    assert (found.totals.published, found.totals.depth, found.totals.failure_ratio) == (5, 5, None)
    assert (found.series.step, found.series.published[-2:], found.series.depth[-2:]) == (60, [0, 5], [0, 5])
    assert found.series.at[-1] - found.series.at[0] == timedelta(minutes=29)
    (line,) = found.queues
    assert (line.published, line.depth, line.oldest, line.wait_p95, line.drain.outlook) == (5, 5, 30.0, None, "grows")


def test_period_ends_with_the_newest_minute_and_counts_whole_days(tmp_path: Path):
    sample.write(tmp_path, "gold.queue_minutes", [minute(n * 1440 + 600, published=n + 1) for n in range(10)])
    found = gather(Lake(tmp_path), days=3)
    assert found.until == START + timedelta(days=9, minutes=601)
    assert found.since == START + timedelta(days=7)
    assert found.totals.published == 8 + 9 + 10


def test_counts_percentiles_and_shares_are_those_of_the_rows(tmp_path: Path):
    rows = [minute(0, published=10, done=6, failed=2, dead=1, depth=3), minute(1, done=2, expired=1, depth=0)]
    sample.write(tmp_path, "gold.queue_minutes", [*rows, minute(1, "emails", published=4, cancelled=4)])
    waits = [attempt(n // 50, float(n), n * 2.0) for n in range(1, 101)]  # 1 to 49 are of the first minute
    sample.write(tmp_path, "silver.attempts", [*waits, attempt(0, None, None, queue="emails")])
    found = gather(Lake(tmp_path))
    orders, emails = found.queues
    assert (orders.queue, orders.published, orders.ended, orders.failed, orders.dead) == ("orders", 10, 10, 2, 1)
    assert orders.failure_ratio == 0.2
    assert orders.wait_p95 == pytest.approx(95.05)
    assert orders.run_p95 == pytest.approx(190.1)
    assert (emails.ended, emails.wait_p95, emails.failure_ratio) == (4, None, None)
    assert found.series.wait_p50[-3] is None
    assert found.series.wait_p50[-2:] == [pytest.approx(25.0), pytest.approx(74.5)]
    assert found.series.depth[-3:] == [0, 3, 0]


def test_quiet_queue_keeps_its_last_depth(tmp_path: Path):
    rows = [minute(0, "stuck", published=7, depth=7, oldest=60.0), minute(180, published=1), minute(4000, published=1)]
    sample.write(tmp_path, "gold.queue_minutes", rows)
    found = gather(Lake(tmp_path), days=1)
    assert set(found.series.depth) == {7}
    stuck = next(line for line in found.queues if line.queue == "stuck")
    assert (stuck.published, stuck.depth, stuck.oldest) == (0, 7, 60.0 + 4000 * 60)
    assert stuck.drain.outlook == "stands"


def test_drain_is_forecast_from_the_last_minutes(tmp_path: Path):
    rows = [minute(n, published=60, done=100, dead=20, depth=600) for n in range(60)]
    sample.write(tmp_path, "gold.queue_minutes", rows)
    (line,) = gather(Lake(tmp_path)).queues
    assert line.drain.outlook == "drains"
    assert line.drain.seconds == pytest.approx(600.0)


def test_tenants_are_kept_apart(tmp_path: Path):
    sample.write(tmp_path, "gold.queue_minutes", [minute(0, published=1), minute(0, published=9, tenant="other")])
    used: list[dict[str, object]] = [{"published": 1}, {"published": 9, "tenant": "other", "run_seconds": 1e300}]
    sample.write(tmp_path, "gold.tenant_days", used)
    assert [(queue.tenant, queue.published) for queue in gather(Lake(tmp_path)).queues] == [
        ("other", 9),
        ("default", 1),
    ]
    assert [t.tenant for t in gather(Lake(tmp_path)).tenants] == ["other", "default"]
    alone = gather(Lake(tmp_path), tenant="other")
    assert ([store.tenant for store in alone.queues], alone.totals.published) == (["other"], 9)


def test_burn_of_several_days_is_of_all_their_messages(tmp_path: Path):
    sample.write(tmp_path, "gold.queue_minutes", [minute(1440)])
    row = {"queue": "orders", "objective": "success", "target": 0.9}
    days = [
        {**row, "good": 0, "total": 1, "burn": 10.0, "day": date(2026, 3, 2)},
        {**row, "good": 99, "total": 99, "burn": 0.0, "day": date(2026, 3, 3)},
        {**row, "objective": "none", "good": 0, "total": 0, "burn": float("nan"), "target": 1.0},
    ]
    sample.write(tmp_path, "gold.slo", days)
    slo, none = gather(Lake(tmp_path)).slo
    assert slo.ratio == 0.99
    assert slo.burn == pytest.approx(0.1)
    assert [burn for _, burn in slo.days] == [10.0, 0.0]
    assert (none.ratio, none.burn, none.days) == (None, None, [(date(2026, 3, 2), None)])


@pytest.mark.parametrize(("good", "burn", "missed"), [(4, 6.0, True), (9, 1.0, True), (10, 0.0, False)])
def test_an_objective_that_nothing_may_fail_is_missed_by_one(tmp_path: Path, good: int, burn: float, missed: bool):
    sample.write(tmp_path, "gold.queue_minutes", [sample.minute(1, done=good)])
    day = {"queue": "orders", "objective": "success", "target": 1.0, "good": good, "total": 10, "burn": burn}
    sample.write(tmp_path, "gold.slo", [day])
    found = gather(Lake(tmp_path))
    (line,) = found.slo
    assert (line.burn, line.missed) == (burn, missed)
    shown = re.search(r'<span class="(good|bad)">([0-9.]+)</span>', page(found))
    assert shown is not None
    assert shown.groups() == ("bad" if missed else "good", f"{burn:.2f}")


def test_capacity_uses_what_a_message_takes_to_run(tmp_path: Path):
    sample.write(tmp_path, "gold.queue_minutes", [minute(9 * 60, published=600), minute(9 * 60 + 59, published=120)])
    sample.write(tmp_path, "gold.tenant_days", [{"published": 720, "run_seconds": 7200.0}])
    (cell,) = gather(Lake(tmp_path)).week
    assert (cell.weekday, cell.hour, cell.p95, cell.run_seconds, cell.workers) == (0, 9, 720.0, 7200.0, 3)


def test_nulls_and_huge_numbers_are_fine(tmp_path: Path):
    huge = 2**62
    rows = [
        {"queue": "orders", "minute": START},
        minute(1, published=huge, depth=huge, oldest=1e18),
        minute(2, published=huge),
    ]
    sample.write(tmp_path, "gold.queue_minutes", rows)
    sample.write(tmp_path, "silver.attempts", [attempt(0, 1e300, float("inf")), attempt(1, float("nan"), None)])
    sample.write(tmp_path, "gold.workers", [{"worker": None}])
    sample.write(tmp_path, "gold.tasks", [{"queue": "orders"}])
    found = gather(Lake(tmp_path))
    assert found.totals.published == 2 * huge
    assert (found.workers[0].deliveries, found.tasks[0].type) == (0, "")


def test_days_must_be_a_number_of_days(tmp_path: Path):
    with pytest.raises(InvalidMessage):
        gather(Lake(tmp_path), days=0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (999, "999"), (0.25, "0.25"), (12_345, "12.3k"), (999_960, "1.0M"), (2**62, "4,612P")],
)
def test_numbers_are_short(value: float | None, text: str):
    assert compact(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0s"),
        (0.0123, "12ms"),
        (1, "1s"),
        (59.96, "1m"),
        (65, "1m5s"),
        (3700, "1h1m"),
        (1e9, "11,574d"),
    ],
)
def test_durations_are_short(value: float | None, text: str):
    assert seconds(value) == text


def test_shares_show_what_matters():
    assert [percent(v) for v in (None, 0.0, 0.0123456, 0.5, 0.99951, 1.0)] == [
        "-", "0 %", "1.2 %", "50 %", "99.95 %", "100 %",
    ]  # fmt: skip


def test_blocks_show_the_shape():
    assert sparkline([0, 1, 4, 8, None], 10) == "▁▁▄█ "
    assert sparkline([1, 8, 0, 4], 2) == "█▄"
    assert (sparkline([], 5), sparkline([0, 0], 5)) == ("", "▁▁")
    assert (bar(1, 2, 4), bar(0, 0, 4), bar(1, 16, 2)) == ("██", "", "▏")


def test_axis_ends_at_a_round_number():
    assert [ceiling(v) for v in (0, 7, 11, 15, 950)] == [1.0, 8.0, 15.0, 15.0, 1000.0]
    assert ceiling(float("inf")) == 1.0
