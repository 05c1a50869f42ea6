"""Slots that move between the servers of a cluster: calls follow them, or wait, and nothing is lost on the way."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from redis.crc import key_slot

import tampu
from tampu.broker import access
from tampu.engines.port import PutDocument
from tampu.engines.redis.connection import wire
from tampu.engines.redis.connection.node import Patience
from tampu.engines.redis.connection.wire import Wire
from tests.conformance.harness import payloads, until
from tests.engines.redis.reshard import Move, ask, owns
from tests.servers.redis import Server, Trio, redis_binary

TAG = "{tampu:default:moving}"


@pytest.fixture
def trio() -> Iterator[Trio]:
    made = Trio(redis_binary()).start()
    yield made
    made.remove()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "Patience", lambda: Patience(0.1))


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call goes round and round: with pauses that grow, there are some thirty within the time it has."""
    send, go = Wire.send, Wire._send_round
    left = 0

    def counted_send(self: Wire, *args: Any, **options: Any) -> Any:
        nonlocal left
        left = 50
        return send(self, *args, **options)

    def counted_round(self: Wire, *args: Any) -> Any:
        nonlocal left
        left -= 1
        assert left, "a call is sent again and again"
        return go(self, *args)

    monkeypatch.setattr(Wire, "send", counted_send)
    monkeypatch.setattr(Wire, "_send_round", counted_round)


@pytest.mark.usefixtures("bounded")
def test_a_slot_that_moved_is_followed_though_only_its_servers_know(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tampu.open(trio.url(), maintenance=False) as store:
        store.publish("before", 0)
        engine: Any = access.engine(store)
        monkeypatch.setattr(engine.wire.route, "refresh", lambda: None)  # as if asked of one that has not heard of it
        move = Move(trio, TAG)
        move.tell(move.target, move.source)
        monkeypatch.setattr(Patience, "wait", lambda _: pytest.fail("the server said where"))
        store.publish("moving", 1)
        assert ask(move.target, "CLUSTER COUNTKEYSINSLOT", move.slot) > 0
        assert payloads(store.claim("moving")) == [1]


@pytest.mark.usefixtures("bounded", "impatient")
def test_servers_that_name_each_other_are_not_asked_for_ever(trio: Trio) -> None:
    with tampu.open(trio.url(), maintenance=False) as store:
        move = Move(trio, TAG)
        move.tell(move.source)  # it names the target, which names the source
        with pytest.raises(tampu.Unavailable, match="moving this queue"):
            store.publish("moving", 1)
        move.tell(move.target)
        store.publish("moving", 2)
        assert payloads(store.claim("moving", limit=2)) == [2]


@pytest.mark.usefixtures("bounded")
def test_a_url_that_names_one_server_of_a_cluster_is_refused_with_what_to_do(trio: Trio) -> None:
    other = next(server for server in trio.servers if not owns(server, key_slot(b"{tampu}")))
    with pytest.raises(tampu.Unavailable) as refused:
        tampu.open(other.url())
    assert "redis+cluster://" in str(refused.value.hint)


# -- while it is being moved


class Crew:
    """A publisher and a worker that do not stop for anything; the answers each got."""

    def __init__(self, store: tampu.Store, published: list[str]) -> None:
        self._store = store
        self.published = published
        self.done: list[str] = []
        self.stopped = threading.Event()

    def publish(self) -> None:
        while not self.stopped.is_set():
            with contextlib.suppress(tampu.Unavailable):
                self.published += [message.id for message in self._store.publish_many("moving", range(5))]

    def work(self) -> None:
        while not self.stopped.is_set():
            with contextlib.suppress(tampu.Unavailable):
                self.take()

    def goes_on(self, at_work: list[Future[None]]) -> None:
        """Both have done something since; an error of one of them is raised here at once."""
        published, done = len(self.published), len(self.done)

        def progress() -> bool:
            for ended in at_work:
                if ended.done():
                    ended.result()
            return len(self.published) > published and len(self.done) > done

        until(progress)

    def take(self) -> int:
        """Claim and ack. A move may outlast the patience of a call; an ack is safe to repeat."""
        leases = left = self._store.claim("moving", limit=20)
        while left:
            outcomes = self._store.settle([tampu.Ack(lease) for lease in left])
            refused = [outcome.error for outcome in outcomes if not outcome.ok]
            assert all(isinstance(error, tampu.Unavailable) for error in refused), refused
            self.done += [lease.id for lease, outcome in zip(left, outcomes, strict=True) if outcome.ok]
            left = [lease for lease, outcome in zip(left, outcomes, strict=True) if not outcome.ok]
        return len(leases)


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a call waits for a server to be ready for it."""
    met, wait = threading.Event(), Patience.wait

    def wait_and_report(self: Patience) -> bool:
        met.set()
        return wait(self)

    monkeypatch.setattr(Patience, "wait", wait_and_report)
    return met


def test_nothing_is_lost_or_done_twice_while_a_slot_with_messages_is_moved(trio: Trio, waited: threading.Event) -> None:
    with tampu.open(trio.url(), maintenance=False) as store, ThreadPoolExecutor(2) as pool:
        crew = Crew(store, [message.id for message in store.publish_many("moving", range(50))])
        at_work = [pool.submit(crew.publish), pool.submit(crew.work)]
        try:
            for _ in range(3):
                move = Move(trio, TAG)
                move.begin()
                move.carry(2)
                waited.clear()
                assert waited.wait(60)
                move.finish()
                crew.goes_on(at_work)
        finally:
            crew.stopped.set()
        for ended in at_work:
            ended.result(60)
        while crew.take():
            pass
        assert sorted(crew.done) == sorted(crew.published)
        assert store.stats("moving").done == len(crew.published)
        assert [finding for finding in store.check() if finding[1] == "bad"] == []


@pytest.mark.usefixtures("impatient")
def test_a_slot_whose_move_is_not_finished_is_said_to_be_away_and_nothing_changes(trio: Trio) -> None:
    with tampu.open(trio.url(), maintenance=False) as store:
        store.publish_many("moving", range(10))
        transitions = store.journal().transitions
        move = Move(trio, TAG)
        move.begin()
        carried = 1
        while carried:
            for call in (
                lambda: store.publish("moving", "lost?"),
                lambda: store.claim("moving"),
                lambda: store.stats("moving"),
            ):
                with pytest.raises(tampu.Unavailable, match="moving this queue"):
                    call()
            assert (
                store.journal().transitions == transitions
            )  # one key after the other: those can be read wherever they are
            store.publish("elsewhere", 1)
            transitions = store.journal().transitions
            carried = move.carry(1)
        move.finish()
        assert payloads(store.claim("moving", limit=20)) == list(range(10))
        assert [finding for finding in store.check() if finding[1] == "bad"] == []


def test_documents_are_found_on_the_server_that_they_moved_to(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of looking for them, and with a client that has not heard of the move."""
    kinds = [f"kind{n:04}" for n in range(1500)]
    with tampu.open(trio.url(), maintenance=False) as store:
        engine: Any = access.engine(store)
        engine.run([PutDocument(kind, "default", "one", b"") for kind in kinds])
        send, sent = Wire.send, 0

        def moved_meanwhile(self: Wire, *args: Any, **options: Any) -> Any:
            nonlocal sent
            replies = send(self, *args, **options)
            sent += 1
            if sent == 1:
                move = Move(trio, "{tampu}")
                move.begin()
                move.finish()
            return replies

        monkeypatch.setattr(Wire, "send", moved_meanwhile)
        assert [document.kind for document in engine.all_documents()] == kinds


def test_who_waits_is_woken_through_the_server_that_the_channel_moved_to(trio: Trio) -> None:
    with tampu.open(trio.url()) as store:
        peers: Any = access.engine(store).peers  # type: ignore[attr-defined]  # a RedisEngine
        if not peers._sharded:
            pytest.skip("this version has no channels that move with a slot")
        move = Move(trio, "{tampu}")
        until(lambda: _listeners(move.source, peers._channel) == 1)
        move.begin()
        move.finish()
        until(lambda: _listeners(move.target, peers._channel) == 1)


def _listeners(server: Server, channel: str) -> int:
    ((_, count),) = ask(server, "PUBSUB SHARDNUMSUB", channel)
    return int(count)
