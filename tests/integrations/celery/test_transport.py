"""The transport by kombu itself, without Celery."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kombu
import pytest
from kombu.pools import reset

import tampu
from tampu.integrations.celery import stores
from tampu.integrations.celery.names import queue_name

Connect = Callable[..., kombu.Connection]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def connect(url: str) -> Iterator[Connect]:
    made = []

    def connection(**options: Any) -> kombu.Connection:
        made.append(kombu.Connection(f"tampu+{url}", transport_options=options))
        return made[-1]

    yield connection
    for each in made:
        each.release()
    reset()
    assert not stores._open


@pytest.fixture
def store(url: str, connect: Connect) -> Iterator[tampu.Store]:
    """The library on the same file, closed before the connections are."""
    with tampu.open(url, maintenance=False) as opened:
        yield opened


def _drain(
    connection: kombu.Connection, queues: list[kombu.Queue], count: int, *, ack: bool = True, **more: Any
) -> list[Any]:
    """(body, message) of messages that are consumed."""
    found: list[Any] = []

    def take(body: Any, message: Any) -> None:
        found.append((body, message))
        if ack and not more.get("no_ack"):
            message.ack()

    with connection.Consumer(queues, callbacks=[take], **more):
        while len(found) < count:
            connection.drain_events(timeout=60)
        with contextlib.suppress(socket.timeout):
            connection.drain_events(timeout=0)
    return found


def test_messages_go_through_a_simple_queue(connect: Connect, store: tampu.Store) -> None:
    connection = connect()
    with connection.SimpleQueue("work") as queue:
        for number in range(3):
            queue.put({"n": number, "text": "grüße"})
        assert queue.qsize() == 3
        for number in range(3):
            message = queue.get(timeout=60)
            assert message.payload == {"n": number, "text": "grüße"}
            message.ack()
        with pytest.raises(queue.Empty):
            queue.get(block=False)
        queue.put("x")
        assert queue.clear() == 1
    assert store.stats("work").done == 3


@pytest.mark.parametrize("serializer", ["json", "pickle", "yaml", "tampu-msgpack"])
def test_any_serializer_survives(connect: Connect, serializer: str) -> None:
    connection = connect()
    with connection.SimpleQueue("work") as queue:
        queue.put({"n": [1, None, "x"]}, serializer=serializer, compression="zlib" if serializer == "json" else None)
        kombu.enable_insecure_serializers([serializer])
        try:
            message = queue.get(timeout=60)
            assert message.payload == {"n": [1, None, "x"]}
            message.ack()
        finally:
            kombu.disable_insecure_serializers()


def test_higher_priorities_come_first(connect: Connect) -> None:
    connection = connect()
    queue = kombu.Queue("work", kombu.Exchange("work"), routing_key="work")
    with connection.Producer() as producer:
        for priority in (0, 9, 5, 9):
            producer.publish(priority, exchange="work", routing_key="work", declare=[queue], priority=priority)
    assert [body for body, _ in _drain(connection, [queue], 4)] == [9, 9, 5, 0]


def test_a_requeued_message_is_redelivered_and_a_rejected_one_is_dead(connect: Connect, store: tampu.Store) -> None:
    connection = connect()
    with connection.SimpleQueue("work") as queue:
        queue.put("x")
        queue.get(timeout=60).requeue()
        message = queue.get(timeout=60)
        assert message.payload == "x"
        message.reject()
    (dead,) = store.messages("work", state="dead")
    assert (dead.reason, dead.attempts) == ("rejected", 1)


def test_what_a_closed_connection_did_not_acknowledge_is_delivered_to_the_next(connect: Connect) -> None:
    first, queue = connect(), kombu.Queue("work", kombu.Exchange("work"), routing_key="work")
    with first.Producer() as producer:
        for number in range(5):
            producer.publish(number, exchange="work", routing_key="work", declare=[queue])
    assert len(_drain(first, [queue], 5, ack=False)) == 5
    first.release()
    found = _drain(connect(), [queue], 5)
    assert sorted(body for body, _ in found) == [0, 1, 2, 3, 4]


def test_prefetch_limits_what_a_consumer_has(connect: Connect, store: tampu.Store) -> None:
    connection, queue = connect(), kombu.Queue("work", kombu.Exchange("work"), routing_key="work")
    with connection.Producer() as producer:
        for number in range(5):
            producer.publish(number, exchange="work", routing_key="work", declare=[queue])
    taken: list[Any] = []
    with connection.Consumer([queue], callbacks=[lambda body, message: taken.append(message)], prefetch_count=2):
        with contextlib.suppress(socket.timeout):
            connection.drain_events(timeout=60)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.1)
        assert (len(taken), store.stats("work").leased) == (2, 2)
        taken.pop().ack()
        connection.drain_events(timeout=60)
        assert len(taken) == 2
        for message in taken:
            message.ack()


def test_topics_and_broadcasts_reach_the_queues_of_other_processes(url: str, connect: Connect) -> None:
    """Bindings are in the store: the producer has not declared the queues."""
    topic, news = kombu.Exchange("topics", type="topic"), kombu.Exchange("news", type="fanout")
    queues = [kombu.Queue(f"q{n}", topic, routing_key=key) for n, key in enumerate(["shop.*", "shop.mail", "#"])]
    queues += [kombu.Queue(name, news) for name in ("a", "b@host")]
    consumer = connect()
    for queue in queues:
        queue(consumer.channel()).declare()
    producing = connect()
    with producing.Producer() as producer:
        producer.publish("mail", exchange=topic, routing_key="shop.mail", declare=[topic])
        producer.publish("other", exchange=topic, routing_key="other", declare=[topic])
        producer.publish("all", exchange=news, declare=[news])
    found = sorted(body for body, _ in _drain(consumer, queues, 6))
    assert found == ["all", "all", "mail", "mail", "mail", "other"]
    queues[0](consumer.channel()).delete()
    with producing.Producer() as producer:
        producer.publish("again", exchange=news, declare=[news], retry=True)
    assert len(_drain(consumer, queues[3:], 2)) == 2


def test_consumers_without_acks_take_messages_for_good(connect: Connect, store: tampu.Store) -> None:
    connection, queue = connect(), kombu.Queue("work", kombu.Exchange("work"), routing_key="work")
    with connection.Producer() as producer:
        producer.publish("x", exchange="work", routing_key="work", declare=[queue])
    assert [body for body, _ in _drain(connection, [queue], 1, no_ack=True)] == ["x"]
    assert store.stats("work").done == 1


def test_a_queue_keeps_the_settings_somebody_gave_it(connect: Connect, store: tampu.Store) -> None:
    store.queues.put("mine", max_payload=1000, lease=5)
    connection = connect()
    connection.SimpleQueue("mine").close()
    assert store.queues.get("mine", inherited=False).ordering is None
    connection.SimpleQueue("theirs").close()
    assert store.queues.get("theirs", inherited=False).ordering == "priority"


def test_a_message_with_an_eta_waits_in_the_broker(connect: Connect, store: tampu.Store) -> None:
    connection, queue = connect(), kombu.Queue("work", kombu.Exchange("work"), routing_key="work")
    eta = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    headers = {"task": "shop.tasks.mail", "eta": eta, "root_id": "story"}
    with connection.Producer() as producer:
        producer.publish("x", exchange="work", routing_key="work", declare=[queue], headers=headers)
    (message,) = store.messages("work", state="delayed")
    assert (message.type, message.correlation_id, message.run_at) == (
        "shop.tasks.mail",
        "story",
        datetime.fromisoformat(eta),
    )


def test_broadcast_queues_of_workers_that_were_killed_are_forgotten(
    connect: Connect, store: tampu.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, news = connect(), kombu.Exchange("news", type="fanout")
    kombu.Queue("gone", news)(connection.channel()).declare()
    with connection.Producer() as producer:
        producer.publish("one", exchange=news, declare=[news])
        monkeypatch.setattr("tampu.integrations.celery.bindings._ABANDONED", timedelta(0))
        for _ in range(2):
            producer.publish("two", exchange=news, declare=[news])
    assert [message.payload["body"] for message in store.messages("gone")] != []
    assert store.stats("gone").ready == 1


def test_messages_of_others_are_dead_and_stop_nobody(connect: Connect, store: tampu.Store) -> None:
    for payload in ({"a": 1}, b"\xff", [1], "text", {"properties": 1}):
        store.publish("work", payload)
    connection, queue = connect(), kombu.Queue("work", kombu.Exchange("work"), routing_key="work")
    with connection.Producer() as producer:
        producer.publish("mine", exchange="work", routing_key="work", declare=[queue])
    assert [body for body, _ in _drain(connection, [queue], 1)] == ["mine"]
    assert {message.reason for message in store.messages("work", state="dead")} == {"decode_failed"}
    assert store.stats("work").dead == 5


def test_queues_take_turns(connect: Connect) -> None:
    connection = connect()
    queues = [kombu.Queue(name, kombu.Exchange("work"), routing_key=name) for name in ("a", "b")]
    with connection.Producer() as producer:
        for name in ["a"] * 300 + ["b"]:
            producer.publish(name, exchange="work", routing_key=name, declare=queues)
    seen: list[str] = []

    def take(body: str, message: Any) -> None:
        seen.append(body)
        message.ack()

    with connection.Consumer(queues, callbacks=[take]):
        while "b" not in seen:
            connection.drain_events(timeout=60)
    assert len(seen) < 301


def test_a_callback_that_raises_keeps_nobody_waiting(connect: Connect, store: tampu.Store) -> None:
    connection, queue = connect(), kombu.Queue("work", kombu.Exchange("work"), routing_key="work")
    with connection.Producer() as producer:
        for number in range(5):
            producer.publish(number, exchange="work", routing_key="work", declare=[queue])

    def fail(body: Any, message: Any) -> None:
        raise LookupError(body)

    with connection.Consumer([queue], callbacks=[fail]), pytest.raises(LookupError):
        connection.drain_events(timeout=60)
    assert (store.stats("work").ready, store.stats("work").leased) == (4, 1)


def test_an_ack_that_fails_makes_room_for_another_message(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    connection, queue = connect(lease=0.2), kombu.Queue("work", kombu.Exchange("work"), routing_key="work")
    with connection.Producer() as producer:
        producer.publish("x", exchange="work", routing_key="work", declare=[queue])
    taken: list[Any] = []
    with connection.Consumer(
        [queue], callbacks=[lambda _, message: taken.append(message)], prefetch_count=1
    ) as consumer:
        connection.drain_events(timeout=60)
        with monkeypatch.context() as broken:
            broken.setattr(consumer.channel.store, "settle", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                taken[0].ack()
        connection.drain_events(timeout=60)  # its lease has run out
        assert taken[1].delivery_info["redelivered"]
        taken[1].ack()


def test_a_worker_that_was_taken_for_dead_binds_its_queue_again(
    connect: Connect, store: tampu.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, news = connect(), kombu.Exchange("news", type="fanout")
    queue = kombu.Queue("busy", news)
    transport = connection.transport
    with connection.Consumer([queue], callbacks=[lambda _, message: message.ack()]):
        transport.bindings.remove("news", "busy")
        monkeypatch.setattr("tampu.integrations.celery.transport._BIND_SECONDS", 0)
        with contextlib.suppress(socket.timeout):
            connection.drain_events(timeout=0.01)
        with contextlib.suppress(socket.timeout):
            connection.drain_events(timeout=0.01)
        assert [binding[2] for binding in transport.bindings.table("news")] == ["busy"]


def test_a_queue_has_the_time_to_live_that_kombu_gives_it(connect: Connect, store: tampu.Store) -> None:
    kombu.Queue("events", kombu.Exchange("events"), message_ttl=5.0)(connect().channel()).declare()
    assert store.queues.get("events", inherited=False).ttl == 5


def test_names_stay_different() -> None:
    names = ["celery", "a@b", "a:40:b", "a b", "x" * 300, "x" * 301, ".x", "", "_:.x"]
    made = [queue_name(name) for name in names]
    assert len(set(made)) == len(names)
    assert made[0] == "celery"
    assert all(len(name) <= 128 for name in made)
    assert "@" not in "".join(made)


def test_passwords_do_not_show() -> None:
    connection = kombu.Connection("tampu+postgresql://ada:secret@127.0.0.1/jobs")
    assert "secret" not in connection.as_uri()
    assert "secret" not in repr(connection)
