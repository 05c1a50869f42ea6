"""The event feed: complete, in order, only for who may hear it, and without a gap over breaks and restarts."""

from __future__ import annotations

import base64
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tampu
from tampu.engines.port import Trim
from tampu.server.auth import key_cache
from tampu.server.auth.grants import parse
from tampu.server.auth.key_admin import KeyAdmin
from tampu.server.events import feed as feeds
from tampu.server.events import positions
from tampu.server.routes import events as route
from tests.conformance.harness import FakeClock, until
from tests.server.conftest import Start
from tests.server.event_client import Event, Listening
from tests.server.web import Web
from tests.servers import postgres, redis
from tests.servers.http import Server, Stall

Listen = Callable[..., Listening]
STORES: dict[str, Callable[[Path], str]] = {
    "file": lambda folder: str(folder / "jobs.db"),
    "postgres": lambda _: postgres.databases.url(),
    "redis": lambda _: redis.redis.url(),
}


@pytest.fixture
def stall(start: Start, tmp_path: Path) -> Stall:
    """On a file, which others may open too."""
    return start(url=str(tmp_path / "jobs.db"))


@pytest.fixture
def store(stall: Stall) -> Iterator[tampu.Store]:
    """The store, past the server."""
    with tampu.open(stall.settings.url, maintenance=False) as queue:
        yield queue


@pytest.fixture
def listen(stall: Stall) -> Iterator[Listen]:
    opened: list[Listening] = []

    def begin(**given: Any) -> Listening:
        opened.append(Listening(stall.url, given.pop("token", stall.token), **given))
        return opened[-1]

    yield begin
    for one in opened:
        one.close()


def key(stall: Stall, *grants: str, tenant: str = "default") -> tuple[str, str]:
    """(token, id) of a new key"""
    made = stall.core.drive(KeyAdmin(stall.core, "*").create("test", [parse(g) for g in grants], tenant=tenant))
    return made.token, made.key.id


def moves(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.data["queue"], event.data["verb"]) for event in events]


def test_a_session_that_ends_gets_nothing_more_however_much_happens(
    stall: Stall, store: tampu.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "BEAT_SECONDS", 2.0)
    token = Web(stall.url).post("/v1/session", {"key": stall.token}).headers["set-cookie"].split(";")[0]
    feed = Listening(stall.url, "", cookie=token)
    over = threading.Event()

    def work() -> None:
        until(lambda: [store.publish("orders", 1)] and over.is_set())

    async def ended(_: str) -> None:
        raise tampu.Unauthorized("the session has ended")

    busy = threading.Thread(target=work)
    busy.start()
    try:
        feed.take(3)
        monkeypatch.setattr(stall.state.authenticator.sessions, "read", ended)
        while (event := feed.next()) is not None and event.kind != "end":
            assert busy.is_alive(), "it got everything"
    finally:
        over.set()
        busy.join()
        feed.close()


def test_an_event_comes_for_every_transition_in_order(listen: Listen, store: tampu.Store) -> None:
    feed = listen()
    store.publish("orders", {"n": 1}, type="order.new")
    (lease,) = store.claim("orders", worker="w")
    store.ack(lease)
    events = feed.take(3)
    assert [event.data["verb"] for event in events] == ["publish", "claim", "ack"]
    assert events[1].data["id"] == lease.message.id
    assert events[1].data["worker"] == "w"
    assert events[0].data["type"] == "order.new"
    assert [event.data["state"] for event in events] == ["ready", "leased", "done"]


def test_a_feed_begins_with_what_comes_now(listen: Listen, store: tampu.Store) -> None:
    store.publish("orders", 1)
    feed = listen()
    store.publish("orders", 2)
    assert feed.take(1)[0].data["offset"] == 2


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"queue": "mail"}, [("mail", "publish"), ("mail", "claim")]),
        ({"queue": "ma*"}, [("mail", "publish"), ("mail", "claim")]),
        ({"verb": "claim"}, [("orders", "claim"), ("mail", "claim")]),
        ({"state": ["ready"], "queue": ["mail", "orders"]}, [("orders", "publish"), ("mail", "publish")]),
        ({"type": "order.*", "verb": "publish"}, [("orders", "publish")]),
        ({"type": "mail.out"}, [("mail", "publish"), ("mail", "claim")]),
        ({"type": "*.*", "verb": "claim"}, [("orders", "claim"), ("mail", "claim")]),
    ],
)
def test_filters_choose(listen: Listen, store: tampu.Store, query: dict[str, Any], expected: list[Any]) -> None:
    feed = listen(**query)
    store.publish("orders", 1, type="order.new")
    store.claim("orders")
    store.publish("mail", 1, type="mail.out")
    store.claim("mail")
    assert moves(feed.take(len(expected))) == expected


def test_the_type_of_a_message_is_looked_up_when_its_coming_was_not_heard(
    listen: Listen, store: tampu.Store, stall: Stall
) -> None:
    first = store.publish("orders", 1, type="order.new")
    store.publish("orders", 2, type="order.old")
    feed = listen(type="order.new")
    for lease in store.claim("orders", limit=2):
        store.ack(lease)
    events = feed.take(2)
    assert [(event.data["verb"], event.data["id"]) for event in events] == [("claim", first.id), ("ack", first.id)]
    store.purge("orders", state="done")
    stall.state.types._known.clear()
    assert moves(listen(type="order.new", after="0", seconds=0).take(1)) == [("orders", "publish")]


def test_type_and_correlation_id_of_each_event_are_looked_up_for_who_asks(listen: Listen, store: tampu.Store) -> None:
    store.publish("orders", 1, type="order.new", correlation_id="c")
    store.ack(store.claim("orders")[0])

    def details(**query: Any) -> list[Any]:
        return [event.data[name] for event in listen(after="0", seconds=0, **query).take(3) for name in FIELDS]

    assert details(details="true") == 3 * ["order.new", "c"]
    assert details() == ["order.new", None, *4 * [None]], "the journal has the type at publish only"
    store.purge("orders", state="done")
    assert details(details="true") == 3 * ["order.new", "c"], "known since the first feed"


FIELDS = ("type", "correlation_id")


def test_resume_tells_what_happened_meanwhile_once(listen: Listen, store: tampu.Store) -> None:
    feed = listen()
    store.publish_many("orders", range(5))
    seen = feed.take(3)
    feed.close()
    store.publish_many("orders", range(5))
    again = listen(after=seen[-1].id)
    store.publish("orders", "last")
    assert [e.data["offset"] for e in again.take(8)] == list(range(4, 12))


def test_a_feed_that_never_got_an_event_resumes_from_where_it_began(listen: Listen, store: tampu.Store) -> None:
    store.publish("orders", 1)
    feed = listen()
    feed.close()
    store.publish("orders", 2)
    assert listen(after=feed.last).take(1)[0].data["offset"] == 2


def test_a_feed_may_end_by_itself_with_what_there_is(listen: Listen, store: tampu.Store) -> None:
    store.publish_many("orders", range(1500))
    feed = listen(after="0", seconds=0)
    assert len(feed.take(1500)) == 1500
    assert feed.next() is None


@pytest.mark.parametrize("engine", STORES)
def test_resume_across_a_restart_has_no_gap(tmp_path: Path, engine: str) -> None:
    """Everything published before, while and after the server was down arrives once, in each queue's order."""
    url = STORES[engine](tmp_path)
    settings: dict[str, Any] = {"url": url, "key_file": tmp_path / "admin.key"}
    server = Server(**settings)
    with tampu.open(url, maintenance=False) as store:
        store.publish("early", 0)
        feed = Listening(server.url, server.token)
        for n in range(3):
            store.publish_many("orders", range(4))
            store.publish("mail", n)
        events = feed.take(7)
        server.stop()
        while (event := feed.next()) is not None:
            events.append(event)
        feed.close()
        store.publish_many("orders", range(10))
        store.publish_many("new", range(3))
        server = Server(**settings)
        again = Listening(server.url, server.token, after=feed.last)
        store.publish("mail", "last")
        events += again.take(15 + 14 - len(events))
        again.close()
        server.stop()
        expected = [(t.queue, t.id) for t in store.journal(limit=1000).transitions if t.queue != "early"]
    for queue in ("orders", "mail", "new"):
        assert [e.data["id"] for e in events if e.data["queue"] == queue] == [
            id for name, id in expected if name == queue
        ]


def test_a_restricted_key_hears_only_its_queues(stall: Stall, listen: Listen, store: tampu.Store) -> None:
    feed = listen(token=key(stall, "view:orders.*")[0])
    for queue in ("mail", "orders.eu", "orders", "orders.us"):
        store.publish(queue, 1)
    assert moves(feed.take(2)) == [("orders.eu", "publish"), ("orders.us", "publish")]


def test_a_restricted_key_does_not_learn_names_of_other_queues(tmp_path: Path) -> None:
    server = Stall(url=redis.redis.url(), key_file=tmp_path / "admin.key")
    try:
        with tampu.open(server.settings.url, maintenance=False) as store:
            store.publish("secret", 1)
            store.publish("orders", 1)
            token, _ = key(server, "view:orders")
            feed = Listening(server.url, token)
            store.publish("secret", 2)
            store.publish("orders", 2)
            (event,) = feed.take(1)
            assert event.id == "default/orders:2"
            feed.close()
            store.publish("secret", 3)
            store.publish("orders", 3)
            again = Listening(server.url, token, after=event.id)
            assert again.take(1)[0].id == "default/orders:3"
            again.close()
    finally:
        server.stop()


def test_other_tenants_are_not_heard(stall: Stall, listen: Listen, store: tampu.Store) -> None:
    mine = listen(token=key(stall, "view", tenant="acme")[0])
    store.publish("orders", 1)
    with tampu.open(stall.settings.url, tenant="acme", maintenance=False) as acme:
        acme.publish("orders", 1)
    (event,) = mine.take(1)
    assert event.data["tenant"] == "acme"


def test_without_view_there_is_no_feed(stall: Stall, listen: Listen) -> None:
    feed = listen(token=key(stall, "publish,consume")[0])
    assert (feed.status, feed.problem()["code"]) == (403, "forbidden")
    named = listen(token=key(stall, "view:orders")[0], queue="mail")
    assert (named.status, named.problem()["code"]) == (403, "forbidden")
    assert listen(token="tampu_nobody").status == 401


def test_revoking_the_key_ends_the_feed(stall: Stall, listen: Listen, store: tampu.Store) -> None:
    token, id = key(stall, "view")
    feed = listen(token=token)
    stall.core.drive(KeyAdmin(stall.core, "*").revoke(id))
    event = feed.next()
    assert event is not None
    assert (event.kind, event.data) == ("end", {"code": "unauthorized"})
    assert feed.next() is None


def test_rotating_the_key_does_not_end_the_feed(stall: Stall, listen: Listen, store: tampu.Store) -> None:
    token, id = key(stall, "view")
    feed = listen(token=token)
    stall.core.drive(KeyAdmin(stall.core, "*").rotate(id))
    known = stall.state.authenticator.key_cache._known
    until(lambda: any(k.key.rotated_us for k in list(known.values())))
    store.publish("orders", 1)
    assert moves(feed.take(1)) == [("orders", "publish")]


def test_a_quiet_feed_beats_and_its_id_moves_on(
    listen: Listen, stall: Stall, store: tampu.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "BEAT_SECONDS", 0.05)
    feed = listen(queue="mail")
    store.publish_many("orders", range(4))
    until(lambda: feed.beat().get("id") == "0:4")


def test_a_key_that_expires_ends_an_idle_feed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "BEAT_SECONDS", 0.05)
    clock = FakeClock()
    node = start(clock=clock)
    ring = KeyAdmin(node.core, "*")
    made = node.core.drive(ring.create("short", [parse("view")], tenant="default", expires_in=60))
    feed = Listening(node.url, made.token)
    assert feed.status == 200
    clock.advance(60)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 60)
    monkeypatch.setattr(key_cache, "time", later)
    event = feed.next()
    assert event is not None
    assert event.kind == "end"
    feed.close()


def test_a_slow_reader_loses_nothing(listen: Listen, store: tampu.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit in memory for it is read again from the journal."""
    monkeypatch.setattr(feeds, "_MAX_WAITING", 50)
    monkeypatch.setattr(feeds, "_PAGE", 20)
    feed = listen()
    for _ in range(20):
        store.publish_many("orders", range(100))
    assert [e.data["offset"] for e in feed.take(2000)] == list(range(1, 2001))


def test_feeds_that_begin_while_much_happens_have_no_gap(stall: Stall, listen: Listen, store: tampu.Store) -> None:
    store.publish_many("orders", range(100))
    first = positions.write({"0": 10})
    done = threading.Event()

    def load() -> None:
        for _ in range(60):
            store.publish_many("orders", range(25))
        done.set()

    loader = threading.Thread(target=load)
    loader.start()
    offsets = [[e.data["offset"] for e in listen(after=first).take(1590)] for _ in range(3)]
    loader.join()
    assert done.is_set()
    assert all(one == list(range(11, 1601)) for one in offsets)


def test_a_position_that_the_journal_lost_is_reported_as_a_gap(
    stall: Stall, listen: Listen, store: tampu.Store
) -> None:
    store.publish("orders", 1)
    feed = listen(after="0:50")
    assert feed.gap == {"asked": {"0": 50}, "found": {"0": 1}}
    store.publish("orders", 2)
    assert feed.take(1)[0].data["offset"] == 2


def test_a_position_that_retention_has_passed_is_reported_as_a_gap(start: Start, tmp_path: Path) -> None:
    stall = start(url=str(tmp_path / "jobs.db"), maintenance=False)
    with tampu.open(stall.settings.url, maintenance=False) as store:
        store.publish_many("orders", range(3))
        stall.core.coalescer.submit(Trim({}, 1 << 50, -1, 1000))
        store.publish("orders", 4)
    feed = Listening(stall.url, stall.token, after="0:1")
    assert feed.gap == {"asked": {"0": 1}, "found": {"0": 3}}
    assert feed.take(1)[0].data["offset"] == 4
    feed.close()


@pytest.mark.parametrize("id", ["x", "0:", "0:-1", "~AAAA", "~%%", "0:1,,", "other/queue:3", "0:" + "9" * 30])
def test_bad_ids_are_refused(listen: Listen, id: str) -> None:
    feed = listen(after=id)
    assert (feed.status, feed.problem()["code"]) == (400, "invalid_message")


def test_positions_are_texts_and_back() -> None:
    many = {f"default/queue-{n}": n * 7 for n in range(1000)}
    assert positions.read(positions.write(many)) == many
    assert len(positions.write(many)) < 8000
    assert positions.read(positions.write({})) == {"0": 0}
    assert positions.write({"0": 12}) == "0:12"


def test_many_feeds_share_one_reader(
    stall: Stall, listen: Listen, store: tampu.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds_ = [listen() for _ in range(20)]
    calls: list[Any] = []
    journal = stall.core.engine.journal

    def counted(*asked: Any) -> Any:
        calls.append(asked)
        return journal(*asked)

    monkeypatch.setattr(stall.core.engine, "journal", counted)
    store.publish("orders", 1)
    for feed in feeds_:
        assert moves(feed.take(1)) == [("orders", "publish")]
    assert len(calls) < 20
    for feed in feeds_:
        feed.close()
    until(lambda: not len(stall.state.tail))


@pytest.mark.parametrize(
    "text",
    [
        "0:1," * 200_000 + "0:1",
        ",".join(f"{n}:1" for n in range(150_000)),
        ",".join(f"{'a' * 200}{n}:1" for n in range(4000)),
    ],
    ids=["repeated", "many", "long"],
)
def test_a_short_event_id_is_not_a_long_position(stall: Stall, text: str) -> None:
    """Some hundred bytes could stand for a megabyte, which took a tenth of a second to read."""
    packed = "~" + base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode()
    with pytest.raises(tampu.InvalidMessage):
        positions.read(packed)


def test_the_ids_of_many_partitions_are_read(stall: Stall) -> None:
    position = {f"default/orders.region-{n}": n * 7919 for n in range(3000)}
    assert positions.read(positions.write(position)) == position
