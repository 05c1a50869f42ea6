"""Schedules: what is put is told and published in its time; they are paused, changed, ended, and refused when wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tampu import InvalidMessage, NotFound, PayloadTooLarge, open_async
from tampu.broker.queue import Queue
from tampu.model.times import SECOND
from tests.conformance.house import House, payloads, until
from tests.conformance.ticking import DAY, HOUR, MINUTE, fired, put


def test_a_schedule_publishes_its_message_at_each_tick(q: Queue, house: House) -> None:
    made = q.schedules.put(
        "nightly", queue="jobs", payload={"kind": "daily"}, cron="30 3 * * *", tz="Europe/Rome", type="report.make",
        priority=3, labels={"a": "b"}, headers={"h": "1"}, max_attempts=2, group="g",
    )  # fmt: skip
    assert made.next == datetime(2026, 1, 1, 2, 30, tzinfo=UTC)
    assert (made.status, made.last, made.fired) == ("active", None, 0)
    assert house.fire() == house.clock.now() + 9000 * SECOND
    assert fired(q) == []
    house.clock.advance(9000)
    house.fire()
    house.clock.advance(DAY)
    house.fire()
    house.fire()
    assert fired(q) == ["01-01T02:30", "01-02T02:30"]
    message = q.claim("jobs")[0].message
    assert (message.payload, message.type, message.priority) == ({"kind": "daily"}, "report.make", 3)
    assert (message.labels, message.max_attempts, message.group) == ({"a": "b"}, 2, "g")
    assert message.headers == {
        "h": "1", "tampu-schedule": "nightly", "tampu-tick": "2026-01-01T02:30:00+00:00",
    }  # fmt: skip
    assert message.source == "schedule:nightly"
    seen = q.schedules.get("nightly")
    assert (seen.fired, seen.last, seen.next) == (
        2,
        datetime(2026, 1, 2, 2, 30, tzinfo=UTC),
        datetime(2026, 1, 3, 2, 30, tzinfo=UTC),
    )
    assert q.get(seen.last_id or "").headers["tampu-tick"].startswith("2026-01-02")


def test_what_was_put_is_told(q: Queue) -> None:
    start, end = datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    made = q.schedules.put(
        "s", queue="jobs", payload=b"\x00\xff", every=timedelta(hours=2), start=start, end=end, limit=9, jitter=30,
        missed="all(5)", paused=True, type="t", delay=5, ttl=timedelta(days=1), key="k", content_type="image/png",
        correlation_id="c", max_attempts=3,
    )  # fmt: skip
    assert q.schedules.get("s") == made == q.schedules.list()[0]
    assert (made.payload, made.message.content_type, made.message.type) == (b"\x00\xff", "image/png", "t")
    assert (made.every, made.cron, made.tz) == (timedelta(hours=2), None, "UTC")
    assert (made.start, made.end, made.limit, made.jitter) == (start, end, 9, timedelta(seconds=30))
    assert (made.missed, made.paused, made.status, made.next) == ("all(5)", True, "paused", None)
    assert (made.message.delay, made.message.ttl) == (timedelta(seconds=5), timedelta(days=1))
    assert (made.message.key, made.message.correlation_id, made.message.max_attempts) == ("k", "c", 3)


def test_an_interval_fires_from_its_making_on_and_with_a_start_from_there(q: Queue, house: House) -> None:
    put(q, "plain", every=90)
    put(q, "later", queue="others", every=90, start=house.clock.time + timedelta(seconds=100))
    for _ in range(200):
        house.clock.advance(1)
        house.fire()
    assert fired(q) == ["01-01T00:01", "01-01T00:03"]
    assert [m.headers["tampu-tick"][14:19] for m in q.messages("others")] == ["01:40", "03:10"]


def test_schedules_of_a_tenant_are_its_own(q: Queue, house: House) -> None:
    other = house.open(tenant="acme")
    put(q, every=MINUTE)
    put(other, every=MINUTE, payload="theirs")
    assert [s.payload for s in other.schedules.list()] == ["theirs"]
    house.clock.advance(MINUTE)
    house.fire()
    assert payloads(other.claim("jobs", limit=5)) == ["theirs"]
    assert payloads(q.claim("jobs", limit=5)) == [{"n": 1}]
    assert other.schedules.delete("s")
    assert [s.name for s in q.schedules.list()] == ["s"]


def test_a_schedule_that_is_not_there(q: Queue) -> None:
    for act in (q.schedules.get, q.schedules.pause, q.schedules.resume, q.schedules.fire):
        with pytest.raises(NotFound) as refused:
            act("nobody")
        assert refused.value.field == "name"
    assert q.schedules.delete("nobody") is False
    assert q.schedules.list() == []


# -- pause, limit, end, jitter


def test_pause_and_resume(q: Queue, house: House) -> None:
    put(q, missed="all(9)")
    house.clock.advance(MINUTE)
    house.fire()
    assert (q.schedules.pause("s").status, q.schedules.pause("s").next) == ("paused", None)
    house.clock.advance(3 * MINUTE)
    house.fire()
    assert fired(q) == ["01-01T00:01"]
    resumed = q.schedules.resume("s")
    assert (resumed.status, resumed.next) == ("active", house.clock.time + timedelta(minutes=1))
    house.fire()
    house.clock.advance(MINUTE)
    house.fire()
    assert fired(q) == ["01-01T00:01", "01-01T00:05"]


def test_putting_again_leaves_a_paused_schedule_paused(q: Queue) -> None:
    put(q)
    q.schedules.pause("s")
    assert put(q, payload="new").paused
    assert not put(q, paused=False).paused


def test_a_limit_is_the_number_of_ticks_that_fire(q: Queue, house: House) -> None:
    put(q, limit=2, missed="all(9)")
    house.clock.advance(5 * MINUTE)
    house.fire()
    house.clock.advance(MINUTE)
    assert house.fire() is None
    assert fired(q) == ["01-01T00:01", "01-01T00:02"]
    assert (q.schedules.get("s").status, q.schedules.get("s").next) == ("ended", None)
    assert put(q, limit=3, missed="all(9)").status == "active"
    house.clock.advance(MINUTE)
    house.fire()
    assert len(fired(q)) == 3


def test_an_end_is_the_last_moment_of_a_tick(q: Queue, house: House) -> None:
    put(q, end=house.clock.time + timedelta(minutes=2), missed="all(9)")
    house.clock.advance(9 * MINUTE)
    assert house.fire() is None
    assert fired(q) == ["01-01T00:01", "01-01T00:02"]
    assert q.schedules.get("s").status == "ended"


def test_jitter_makes_ticks_late_and_loses_none(q: Queue, house: House) -> None:
    made = put(q, jitter=30)
    late = made.next - house.clock.time - timedelta(minutes=1)
    assert timedelta(0) <= late <= timedelta(seconds=30)
    for _ in range(6 * 60):
        house.clock.advance(1)
        house.fire()
    assert 5 <= len(fired(q)) <= 6
    assert all(0 <= m.created_at.second <= 30 for m in q.messages("jobs"))


# -- changing


def test_putting_the_same_again_changes_nothing(q: Queue, house: House) -> None:
    first = put(q, every=HOUR, missed="all(9)")
    house.clock.advance(2.5 * HOUR)
    assert put(q, every=HOUR, missed="all(9)") == first
    house.fire()
    assert fired(q) == ["01-01T01:00", "01-01T02:00"]


def test_other_times_hold_from_now_on(q: Queue, house: House) -> None:
    put(q, every=HOUR, missed="all(9)")
    house.clock.advance(2.5 * HOUR)
    changed = put(q, every=None, cron="0 * * * *", missed="all(9)")
    assert changed.next == datetime(2026, 1, 1, 3, tzinfo=UTC)
    house.fire()
    assert fired(q) == []


def test_fire_now_publishes_besides_the_ticks(q: Queue, house: House) -> None:
    put(q, every=HOUR, type="t")
    message = q.schedules.fire("s")
    assert (message.payload, message.type, message.headers) == ({"n": 1}, "t", {"tampu-schedule": "s"})
    assert not message.duplicate
    own = "11111111-2222-4333-8444-555555555555"
    assert [q.schedules.fire("s", id=own).duplicate for _ in range(2)] == [False, True]
    assert (q.stats("jobs").ready, q.schedules.get("s").fired) == (2, 0)
    house.clock.advance(HOUR)
    house.fire()
    assert fired(q) == ["01-01T01:00"]


def test_a_key_lets_a_tick_replace_the_one_that_still_waits(q: Queue, house: House) -> None:
    put(q, key="only-one", missed="all(9)")
    for _ in range(4):
        house.clock.advance(MINUTE)
        house.fire()
    assert fired(q) == ["01-01T00:04"]
    assert q.schedules.get("s").fired == 4


# -- terms


BAD: list[tuple[str, dict[str, Any]]] = [
    ("schedule", {"name": "no spaces"}),
    ("schedule", {"name": "x" * 129}),
    ("queue", {"queue": "no spaces"}),
    ("cron", {"every": None}),
    ("cron", {"cron": "* * * * *"}),
    ("cron", {"every": None, "cron": "* * *"}),
    ("cron", {"every": None, "cron": "0 0 30 2 *"}),
    ("tz", {"every": None, "cron": "* * * * *", "tz": "Mars/Base"}),
    ("tz", {"tz": "Europe/Rome"}),
    ("every", {"every": 0.5}),
    ("every", {"every": "often"}),
    ("start", {"start": datetime(2026, 1, 1)}),  # noqa: DTZ001 - without a zone, on purpose
    ("end", {"start": datetime(2026, 2, 1, tzinfo=UTC), "end": datetime(2026, 1, 1, tzinfo=UTC)}),
    ("limit", {"limit": 0}),
    ("jitter", {"jitter": -1}),
    ("missed", {"missed": "all(0)"}),
    ("paused", {"paused": "yes"}),
    ("priority", {"priority": "high"}),
    ("headers", {"headers": {str(n): "" for n in range(63)}}),
    ("payload", {"payload": object()}),
]


def test_bad_terms_are_refused_with_their_field(q: Queue) -> None:
    for field, changes in BAD:
        terms = {"name": "s", **changes}
        with pytest.raises(InvalidMessage) as refused:
            put(q, terms.pop("name"), **terms)
        assert refused.value.field == field
    assert q.schedules.list() == []


def test_a_payload_larger_than_the_queue_takes_is_refused(q: Queue) -> None:
    q.queues.put("jobs", max_payload=100)
    with pytest.raises(PayloadTooLarge):
        put(q, payload="x" * 200)
    assert q.schedules.list() == []


def test_a_large_payload_is_kept(q: Queue, house: House) -> None:
    put(q, payload="x" * 200_000)
    house.clock.advance(MINUTE)
    house.fire()
    assert payloads(q.claim("jobs")) == ["x" * 200_000]


async def _by_a_loop(house: House, act: Callable[[Any], Any]) -> Any:
    async with open_async(**house.opening(live=True)) as q:
        return await act(q)


def test_event_loops_have_the_same_verbs(house: House) -> None:
    import asyncio

    async def act(q: Any) -> None:
        made = await q.schedules.put("s", queue="jobs", payload=1, every=HOUR)
        assert await q.schedules.list() == [made] == [await q.schedules.get("s")]
        assert (await q.schedules.pause("s")).paused
        assert not (await q.schedules.resume("s")).paused
        assert (await q.schedules.fire("s")).payload == 1
        assert await q.schedules.delete("s")
        assert await q.schedules.list() == []

    asyncio.run(_by_a_loop(house, act))


# -- keepers


def test_keepers_fire_by_themselves(house: House) -> None:
    q = house.live()
    q.schedules.put("s", queue="jobs", payload="tick", every=1, limit=1)
    until(lambda: q.schedules.get("s").fired == 1)
    assert [lease.payload for lease in q.claim("jobs", limit=5, wait=60)] == ["tick"]


def test_a_schedule_of_another_process_is_heard_of(shared_house: House) -> None:
    keeping = shared_house.live()
    assert keeping.queues.list() == []
    q = shared_house.open(live=True)
    q.schedules.put("s", queue="jobs", payload=1, every=1, limit=1)
    until(lambda: q.schedules.get("s").fired == 1)
