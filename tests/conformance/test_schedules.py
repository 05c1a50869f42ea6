"""Schedules: they publish on time, are listed, paused, changed and ended, and are refused if they are wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tampu import InvalidMessage, NotFound, PayloadTooLarge, open_async
from tampu.broker.store import Store
from tampu.model.times import SECOND
from tests.conformance.harness import Harness, payloads, until
from tests.conformance.schedule_helpers import DAY, HOUR, MINUTE, fired, put


def test_a_schedule_publishes_its_message_at_each_tick(store: Store, harness: Harness) -> None:
    made = store.schedules.put(
        "nightly", queue="jobs", payload={"kind": "daily"}, cron="30 3 * * *", tz="Europe/Rome", type="report.make",
        priority=3, labels={"a": "b"}, headers={"h": "1"}, max_attempts=2, group="g",
    )  # fmt: skip
    assert made.next == datetime(2026, 1, 1, 2, 30, tzinfo=UTC)
    assert (made.status, made.last, made.fired) == ("active", None, 0)
    assert harness.fire() == harness.clock.now() + 9000 * SECOND
    assert fired(store) == []
    harness.clock.advance(9000)
    harness.fire()
    harness.clock.advance(DAY)
    harness.fire()
    harness.fire()
    assert fired(store) == ["01-01T02:30", "01-02T02:30"]
    message = store.claim("jobs")[0].message
    assert (message.payload, message.type, message.priority) == ({"kind": "daily"}, "report.make", 3)
    assert (message.labels, message.max_attempts, message.group) == ({"a": "b"}, 2, "g")
    assert message.headers == {
        "h": "1", "tampu-schedule": "nightly", "tampu-tick": "2026-01-01T02:30:00+00:00",
    }  # fmt: skip
    assert message.source == "schedule:nightly"
    seen = store.schedules.get("nightly")
    assert (seen.fired, seen.last, seen.next) == (
        2,
        datetime(2026, 1, 2, 2, 30, tzinfo=UTC),
        datetime(2026, 1, 3, 2, 30, tzinfo=UTC),
    )
    assert store.get(seen.last_id or "").headers["tampu-tick"].startswith("2026-01-02")


def test_a_schedule_is_shown_as_it_was_put(store: Store) -> None:
    start, end = datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    made = store.schedules.put(
        "s", queue="jobs", payload=b"\x00\xff", every=timedelta(hours=2), start=start, end=end, limit=9, jitter=30,
        missed="all(5)", paused=True, type="t", delay=5, ttl=timedelta(days=1), key="k", content_type="image/png",
        correlation_id="c", max_attempts=3,
    )  # fmt: skip
    assert store.schedules.get("s") == made == store.schedules.list()[0]
    assert (made.payload, made.message.content_type, made.message.type) == (b"\x00\xff", "image/png", "t")
    assert (made.every, made.cron, made.tz) == (timedelta(hours=2), None, "UTC")
    assert (made.start, made.end, made.limit, made.jitter) == (start, end, 9, timedelta(seconds=30))
    assert (made.missed, made.paused, made.status, made.next) == ("all(5)", True, "paused", None)
    assert (made.message.delay, made.message.ttl) == (timedelta(seconds=5), timedelta(days=1))
    assert (made.message.key, made.message.correlation_id, made.message.max_attempts) == ("k", "c", 3)


def test_an_interval_starts_at_its_creation_or_at_its_start(store: Store, harness: Harness) -> None:
    put(store, "plain", every=90)
    put(store, "later", queue="others", every=90, start=harness.clock.time + timedelta(seconds=100))
    for _ in range(200):
        harness.clock.advance(1)
        harness.fire()
    assert fired(store) == ["01-01T00:01", "01-01T00:03"]
    assert [m.headers["tampu-tick"][14:19] for m in store.messages("others")] == ["01:40", "03:10"]


def test_tenants_have_their_own_schedules(store: Store, harness: Harness) -> None:
    other = harness.open(tenant="acme")
    put(store, every=MINUTE)
    put(other, every=MINUTE, payload="theirs")
    assert [s.payload for s in other.schedules.list()] == ["theirs"]
    harness.clock.advance(MINUTE)
    harness.fire()
    assert payloads(other.claim("jobs", limit=5)) == ["theirs"]
    assert payloads(store.claim("jobs", limit=5)) == [{"n": 1}]
    assert other.schedules.delete("s")
    assert [s.name for s in store.schedules.list()] == ["s"]


def test_a_schedule_that_is_not_there(store: Store) -> None:
    for act in (store.schedules.get, store.schedules.pause, store.schedules.resume, store.schedules.fire):
        with pytest.raises(NotFound) as refused:
            act("nobody")
        assert refused.value.field == "name"
    assert store.schedules.delete("nobody") is False
    assert store.schedules.list() == []


# -- pause, limit, end, jitter


def test_pause_and_resume(store: Store, harness: Harness) -> None:
    put(store, missed="all(9)")
    harness.clock.advance(MINUTE)
    harness.fire()
    assert (store.schedules.pause("s").status, store.schedules.pause("s").next) == ("paused", None)
    harness.clock.advance(3 * MINUTE)
    harness.fire()
    assert fired(store) == ["01-01T00:01"]
    resumed = store.schedules.resume("s")
    assert (resumed.status, resumed.next) == ("active", harness.clock.time + timedelta(minutes=1))
    harness.fire()
    harness.clock.advance(MINUTE)
    harness.fire()
    assert fired(store) == ["01-01T00:01", "01-01T00:05"]


def test_putting_again_leaves_a_paused_schedule_paused(store: Store) -> None:
    put(store)
    store.schedules.pause("s")
    assert put(store, payload="new").paused
    assert not put(store, paused=False).paused


def test_a_limit_is_the_number_of_ticks_that_fire(store: Store, harness: Harness) -> None:
    put(store, limit=2, missed="all(9)")
    harness.clock.advance(5 * MINUTE)
    harness.fire()
    harness.clock.advance(MINUTE)
    assert harness.fire() is None
    assert fired(store) == ["01-01T00:01", "01-01T00:02"]
    assert (store.schedules.get("s").status, store.schedules.get("s").next) == ("ended", None)
    assert put(store, limit=3, missed="all(9)").status == "active"
    harness.clock.advance(MINUTE)
    harness.fire()
    assert len(fired(store)) == 3


def test_an_end_is_the_last_moment_of_a_tick(store: Store, harness: Harness) -> None:
    put(store, end=harness.clock.time + timedelta(minutes=2), missed="all(9)")
    harness.clock.advance(9 * MINUTE)
    assert harness.fire() is None
    assert fired(store) == ["01-01T00:01", "01-01T00:02"]
    assert store.schedules.get("s").status == "ended"


def test_jitter_makes_ticks_late_and_loses_none(store: Store, harness: Harness) -> None:
    made = put(store, jitter=30)
    late = made.next - harness.clock.time - timedelta(minutes=1)
    assert timedelta(0) <= late <= timedelta(seconds=30)
    for _ in range(6 * 60):
        harness.clock.advance(1)
        harness.fire()
    assert 5 <= len(fired(store)) <= 6
    assert all(0 <= m.created_at.second <= 30 for m in store.messages("jobs"))


# -- changing


def test_putting_the_same_again_changes_nothing(store: Store, harness: Harness) -> None:
    first = put(store, every=HOUR, missed="all(9)")
    harness.clock.advance(2.5 * HOUR)
    assert put(store, every=HOUR, missed="all(9)") == first
    harness.fire()
    assert fired(store) == ["01-01T01:00", "01-01T02:00"]


def test_changed_times_count_from_now_on(store: Store, harness: Harness) -> None:
    put(store, every=HOUR, missed="all(9)")
    harness.clock.advance(2.5 * HOUR)
    changed = put(store, every=None, cron="0 * * * *", missed="all(9)")
    assert changed.next == datetime(2026, 1, 1, 3, tzinfo=UTC)
    harness.fire()
    assert fired(store) == []


def test_fire_publishes_now_without_changing_the_ticks(store: Store, harness: Harness) -> None:
    put(store, every=HOUR, type="t")
    message = store.schedules.fire("s")
    assert (message.payload, message.type, message.headers) == ({"n": 1}, "t", {"tampu-schedule": "s"})
    assert not message.duplicate
    own = "11111111-2222-4333-8444-555555555555"
    assert [store.schedules.fire("s", id=own).duplicate for _ in range(2)] == [False, True]
    assert (store.stats("jobs").ready, store.schedules.get("s").fired) == (2, 0)
    harness.clock.advance(HOUR)
    harness.fire()
    assert fired(store) == ["01-01T01:00"]


def test_a_key_lets_a_tick_replace_the_one_that_still_waits(store: Store, harness: Harness) -> None:
    put(store, key="only-one", missed="all(9)")
    for _ in range(4):
        harness.clock.advance(MINUTE)
        harness.fire()
    assert fired(store) == ["01-01T00:04"]
    assert store.schedules.get("s").fired == 4


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


def test_bad_schedules_are_refused_with_their_field(store: Store) -> None:
    for field, changes in BAD:
        terms = {"name": "s", **changes}
        with pytest.raises(InvalidMessage) as refused:
            put(store, terms.pop("name"), **terms)
        assert refused.value.field == field
    assert store.schedules.list() == []


def test_a_payload_larger_than_the_limit_of_the_queue_is_refused(store: Store) -> None:
    store.queues.put("jobs", max_payload=100)
    with pytest.raises(PayloadTooLarge):
        put(store, payload="x" * 200)
    assert store.schedules.list() == []


def test_a_large_payload_is_kept(store: Store, harness: Harness) -> None:
    put(store, payload="x" * 200_000)
    harness.clock.advance(MINUTE)
    harness.fire()
    assert payloads(store.claim("jobs")) == ["x" * 200_000]


async def _by_a_loop(harness: Harness, act: Callable[[Any], Any]) -> Any:
    async with open_async(**harness.opening(live=True)) as store:
        return await act(store)


def test_the_async_store_has_the_same_verbs(harness: Harness) -> None:
    import asyncio

    async def act(store: Any) -> None:
        made = await store.schedules.put("s", queue="jobs", payload=1, every=HOUR)
        assert await store.schedules.list() == [made] == [await store.schedules.get("s")]
        assert (await store.schedules.pause("s")).paused
        assert not (await store.schedules.resume("s")).paused
        assert (await store.schedules.fire("s")).payload == 1
        assert await store.schedules.delete("s")
        assert await store.schedules.list() == []

    asyncio.run(_by_a_loop(harness, act))


# -- maintenance


def test_maintenance_fires_by_itself(harness: Harness) -> None:
    store = harness.live()
    store.schedules.put("s", queue="jobs", payload="tick", every=1, limit=1)
    until(lambda: store.schedules.get("s").fired == 1)
    assert [lease.payload for lease in store.claim("jobs", limit=5, wait=60)] == ["tick"]


def test_a_schedule_of_another_process_is_noticed(shared_harness: Harness) -> None:
    keeping = shared_harness.live()
    assert keeping.queues.list() == []
    store = shared_harness.open(live=True)
    store.schedules.put("s", queue="jobs", payload=1, every=1, limit=1)
    until(lambda: store.schedules.get("s").fired == 1)
