"""Queue settings: null inherits, put changes only what is named, every reader sees it."""

import functools
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

import tampu
from tampu import InvalidConfig, QueueConfig
from tampu.broker.store import Store
from tests.conformance.harness import Harness, Refusals, payloads, until, waits


def test_a_queue_without_settings_has_the_built_in_ones(store: Store) -> None:
    config = store.queues.get("emails")
    assert (config.status, config.ordering, config.max_attempts, config.lease) == ("open", "fifo", 5, 30.0)
    assert (config.max_payload, config.max_depth, config.ttl) == (256 * 1024, 0, 0.0)
    assert store.queues.get("emails", inherited=False) == QueueConfig()


def test_null_inherits_from_the_default_of_the_tenant(store: Store) -> None:
    store.queues.put("*", max_attempts=7, lease=60)
    store.queues.put("emails", max_attempts=2)
    assert (store.queues.get("emails").max_attempts, store.queues.get("emails").lease) == (2, 60.0)
    assert store.queues.get("letters").max_attempts == 7
    store.queues.put("emails", max_attempts=None)
    assert store.queues.get("emails").max_attempts == 7
    store.queues.put("*", max_attempts=None)
    assert store.queues.get("emails").max_attempts == 5


def test_put_changes_only_what_is_named(store: Store) -> None:
    store.queues.put("emails", max_attempts=2, lease=5)
    own = store.queues.put("emails", lease=timedelta(minutes=1), ordering="priority")
    assert (own.max_attempts, own.lease, own.ordering) == (2, 60.0, "priority")
    assert own == store.queues.get("emails", inherited=False)


def test_put_creates_the_queue(store: Store) -> None:
    store.queues.put("emails", max_attempts=2)
    assert store.queues.list() == ["emails"]
    store.queues.put("*", max_attempts=3)
    assert store.queues.list() == ["emails"]


def test_a_queue_is_created_by_its_first_message(store: Store) -> None:
    assert store.queues.list() == []
    store.publish("emails", 1)
    assert store.queues.list() == ["emails"]


def test_reset_goes_back_to_inheriting_and_keeps_the_messages(store: Store) -> None:
    store.queues.put("emails", max_attempts=2)
    message = store.publish("emails", 1)
    assert store.queues.reset("emails")
    assert not store.queues.reset("emails")
    assert store.queues.get("emails").max_attempts == 5
    assert store.claim("emails")[0].id == message.id


def test_settings_survive_opening_again(harness: Harness) -> None:
    store = harness.open()
    own = store.queues.put("emails", backoff=tampu.linear(2, cap=9, jitter="none"), rate=5.5, group_order=True)
    assert harness.reopen().queues.get("emails", inherited=False) == own


BACKOFFS: list[tuple[object, tampu.Backoff]] = [
    (tampu.fixed(3), tampu.Backoff(kind="fixed", base=3, cap=3)),
    ("exponential", tampu.Backoff()),
    ([1, timedelta(seconds=2)], tampu.Backoff(kind="list", delays=(1.0, 2.0), jitter="none")),
    (5, tampu.Backoff(kind="fixed", base=5, jitter="none")),
    ("5m", tampu.Backoff(kind="fixed", base=300, jitter="none")),
    (["1s", 5, "1h"], tampu.Backoff(kind="list", delays=(1.0, 5.0, 3600.0), jitter="none")),
    ({"base": "1s", "cap": "5m"}, tampu.Backoff(base=1, cap=300)),
    ({"kind": "linear", "base": 2}, tampu.Backoff(kind="linear", base=2)),
    (tampu.exponential(timedelta(seconds=1), cap=60, jitter="full"), tampu.Backoff(cap=60, jitter="full")),
]


def test_backoff_is_accepted_in_every_form(store: Store) -> None:
    for given, kept in BACKOFFS:
        assert store.queues.put("emails", backoff=given).backoff == kept
        assert store.queues.get("emails").backoff == kept


BAD: list[dict[str, object]] = [
    {"no_such": 1}, {"max_attempts": 0}, {"max_attempts": 1.5}, {"max_attempts": "3"}, {"max_attempts": True},
    {"max_attempts": 1001}, {"lease": 0}, {"lease": -1}, {"lease": float("nan")}, {"lease": "soon"},
    {"ttl": float("inf")}, {"ttl": 200 * 366 * 86_400}, {"ordering": "random"}, {"ordering": 3},
    {"ordering": int}, {"status": "sleeping"}, {"status": ["open"]}, {"rate": float("nan")}, {"rate": -1},
    {"rate": float("inf")}, {"rate": "fast"}, {"burst": 1.5}, {"max_depth": -1}, {"max_in_flight": []},
    {"max_payload": 0}, {"max_payload": 2**40}, {"group_order": 1}, {"group_order": "yes"}, {"backoff": []},
    {"backoff": "random"}, {"backoff": {"kind": "linear", "base": -1}}, {"backoff": {"base": float("nan")}},
    {"backoff": [1, float("inf")]}, {"backoff": [1, "soon"]}, {"backoff": int}, {"backoff": True},
    {"backoff": {"jitter": "some"}}, {"backoff": {"delays": 3}}, {"max_attempts": 3, "lease": -1},
]  # fmt: skip


def test_a_bad_setting_is_refused_and_changes_nothing(store: Store, refused: Refusals) -> None:
    store.queues.put("emails", max_attempts=4)
    for changes in BAD:
        refused(store, "invalid_config", functools.partial(store.queues.put, "emails", **changes))
        assert store.queues.get("emails").max_attempts == 4, changes


def test_a_bad_backoff_helper_is_refused() -> None:
    for make in (tampu.fixed, tampu.linear, tampu.exponential):
        for base in (-1, float("nan"), "soon", None):
            with pytest.raises(InvalidConfig):
                make(base)  # type: ignore[arg-type]  # bad on purpose
        with pytest.raises(InvalidConfig):
            make(1, jitter="some")


def test_a_bad_queue_name_has_no_settings(store: Store, refused: Refusals) -> None:
    names: list[Any] = ["", "a/b", "a b", "x" * 129, "größe", None, 3, "-a", "a\n", "**"]
    for name in names:
        for call in (functools.partial(store.queues.put, lease=1), store.queues.get, store.queues.reset):
            refused(store, "invalid_message", functools.partial(call, name), "queue")


def test_two_writers_lose_none_of_their_changes(store: Store, harness: Harness) -> None:
    other = harness.open()
    store.queues.put("emails", max_attempts=2)
    other.queues.put("emails", lease=5)
    store.queues.put("emails", rate=3)
    own = other.queues.get("emails", inherited=False)
    assert (own.max_attempts, own.lease, own.rate) == (2, 5.0, 3.0)


class Watch:
    """Stands in for the clock by which settings are looked at anew."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


def test_a_change_is_noticed_within_a_second_by_all_open_stores(
    shared_harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch()
    monkeypatch.setattr("tampu.broker.settings.time", watch)
    one, two = shared_harness.open(), shared_harness.open()
    assert two.publish("jobs", "x").max_attempts == 5
    one.queues.put("jobs", max_attempts=2)
    watch.seconds += 1
    assert two.publish("jobs", "x").max_attempts == 2
    one.queues.put("*", max_payload=2)
    watch.seconds += 1
    with pytest.raises(tampu.PayloadTooLarge):
        two.publish("jobs", "x")
    one.close_queue("jobs")
    watch.seconds += 1
    with pytest.raises(tampu.QueueClosed):
        two.publish("jobs", 1)
    one.queues.reset("jobs")
    watch.seconds += 1
    assert two.publish("jobs", 1).max_attempts == 5


def test_a_claim_waiting_at_a_paused_queue_continues_when_another_process_resumes_it(shared_harness: Harness) -> None:
    worker, other = shared_harness.live(), shared_harness.open(live=True)
    other.publish("jobs", "hello")
    other.pause("jobs")
    until(lambda: worker.stats("jobs").status == "paused")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(worker.claim, "jobs", wait=240)
        until(lambda: waits(worker))
        other.resume("jobs")
        assert payloads(waiting.result(60)) == ["hello"]


def test_a_rate_can_be_written_with_its_unit(store: Store) -> None:
    for text, rate in (("100/s", 100), ("30/m", 0.5), ("1.5/s", 1.5), ("7200 / h", 2)):
        assert store.queues.put("emails", rate=text).rate == rate


def test_a_bad_rate_is_refused(store: Store, refused: Refusals) -> None:
    for text in ("", "fast", "10", "10/d", "-1/s", "1e3/s", "/s", "10/s/s"):
        refused(store, "invalid_config", functools.partial(store.queues.put, "emails", rate=text), "rate")


def test_a_queue_inherits_from_the_longest_scope_it_is_in(store: Store) -> None:
    store.queues.put("*", max_attempts=2, lease=11, ttl=13)
    store.queues.put("shop.*", max_attempts=3, lease=12)
    store.queues.put("shop.mail.*", max_attempts=4)
    store.queues.put("shop.mail.daily", ordering="priority")
    daily = store.queues.get("shop.mail.daily")
    assert (daily.ordering, daily.max_attempts, daily.lease, daily.ttl, daily.status) == ("priority", 4, 12, 13, "open")
    assert [store.queues.get(q).max_attempts for q in ("shop.emails", "shop", "shopping.emails", "mail")] == [
        3,
        2,
        2,
        2,
    ]
    assert store.queues.get("shop.mail.*").lease == 12
    assert store.queues.list() == ["shop.mail.daily"]
    sources = store.queues.sources("shop.mail.daily")
    wanted = {"ordering": "shop.mail.daily", "max_attempts": "shop.mail.*", "lease": "shop.*", "ttl": "*"}
    assert {name: sources[name] for name in wanted} == wanted
    assert sources["status"] == "built in"
    assert store.queues.reset("shop.mail.*")
    assert store.queues.get("shop.mail.daily").max_attempts == 3


def test_what_is_published_to_a_scope_uses_its_settings(store: Store) -> None:
    store.publish("shop.emails", "low", priority=1)
    store.publish("shop.emails", "high", priority=2)
    store.publish("emails", "low", priority=1)
    store.publish("emails", "high", priority=2)
    store.queues.put("shop.*", ordering="priority", max_attempts=1)
    assert payloads(store.claim("shop.emails", limit=2)) == ["high", "low"]
    assert payloads(store.claim("emails", limit=2)) == ["low", "high"]
    made = store.publish("shop.letters", 1)
    assert made.max_attempts == 1
    assert [stats.queue for stats in store.stats("shop.*")] == ["shop.emails", "shop.letters"]
    with pytest.raises(tampu.InvalidMessage):
        store.publish("shop.*", 1)
