"""Ids that are unique in a tenant, over slots: a process that dies or is slow between its two steps harms nobody."""

import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import tampu
from tampu.broker import access, validate
from tampu.broker.settings import resolve
from tampu.engines import port
from tampu.engines.redis import ids
from tampu.engines.redis.connection import scripts
from tampu.engines.redis.connection.wire import Wire
from tampu.engines.redis.queue_registry import RunContext
from tampu.engines.redis.verbs import load, publish
from tampu.model.config import BUILT_IN
from tampu.model.message import NewMessage
from tampu.model.values import pack_payload
from tests.conformance.harness import FakeClock
from tests.servers import redis

OWN = "2f1e9c1e-7d8c-4c55-9a52-4f1a6a1b2c3d"
ID_PREFIX = bytes.fromhex("0123456789ab8cde8f0123")
SETTINGS = resolve(BUILT_IN)


@pytest.fixture(params=["redis", "cluster"])
def store(request: pytest.FixtureRequest) -> Iterator[tampu.Store]:
    with tampu.open(getattr(redis, request.param).url(), maintenance=False, clock=FakeClock()) as opened:
        yield opened


class Slow:
    """A publish that stops before one of its pipelines, as a process that is stopped or killed there."""

    def __init__(self, store: tampu.Store, call: port.Publish | port.Load) -> None:
        engine: Any = access.engine(store)
        self._engine = engine
        harness: Any = self._engine.registry
        context = RunContext(harness)
        self._asking: Any = load.load(context, call) if isinstance(call, port.Load) else publish.publish(context, call)
        self._asks = next(self._asking)

    def until(self, script: str) -> None:
        """Go on, up to just before this script."""
        while not any(ask.command[1] == scripts.digest(script) for ask in self._asks):
            self._asks = self._asking.send(self._engine.wire.send(self._asks))

    def finish(self) -> Any:
        try:
            while True:
                self._asks = self._asking.send(self._engine.wire.send(self._asks))
        except StopIteration as end:
            return end.value


def _publish(queue: str, payload: object, **fields: Any) -> port.Publish:
    return port.Publish("default", queue, [validate.item(queue, SETTINGS, NewMessage(payload, **fields))])


def _stopped(store: tampu.Store, call: port.Publish | port.Load) -> Slow:
    slow = Slow(store, call)
    slow.until("load" if isinstance(call, port.Load) else "publish")
    return slow


def test_who_died_before_storing_leaves_the_id_free(store: tampu.Store) -> None:
    _stopped(store, _publish("a", 1, id=OWN))
    assert not store.publish("b", 2, id=OWN).duplicate
    assert store.publish("b", 2, id=OWN).duplicate
    assert store.claim("a") == []


def test_the_same_publish_again_heals_a_death_before_storing(store: tampu.Store) -> None:
    _stopped(store, _publish("a", 1, id=OWN))
    assert not store.publish("a", 1, id=OWN).duplicate
    assert store.publish("a", 1, id=OWN).duplicate
    assert store.stats("a").ready == 1


def test_a_slow_publisher_with_an_idempotency_key_does_not_store_a_second_message(store: tampu.Store) -> None:
    slow = _stopped(store, _publish("a", 1, idempotency_key="i"))
    store.publish("a", 2, idempotency_key="i")
    with pytest.raises(tampu.IdempotencyConflict):
        slow.finish()
    assert [stats.ready for stats in store.stats()] == [1]


def test_an_idempotency_key_reserved_by_an_earlier_version_hinders_nobody(store: tampu.Store) -> None:
    """It reserved keys in the tenant. The key itself was in the queue then too, so it still holds."""
    engine: Any = access.engine(store)
    tag = engine.registry.tags.tenant("default")
    entry = msgspec.msgpack.encode([1 << 52, "a", "token"])
    engine.query(_ask(engine.registry.write.plain("HSET", tag, "names", "ii", entry)))
    first = store.publish("a", 1, idempotency_key="i")
    assert not store.publish("b", 1, idempotency_key="i").duplicate
    assert store.publish("a", 1, idempotency_key="i").id == first.id


def test_a_slow_publisher_with_an_own_id_is_told_that_another_queue_has_it(store: tampu.Store) -> None:
    slow = _stopped(store, _publish("a", 1, id=OWN))
    store.publish("b", 2, id=OWN)
    with pytest.raises(tampu.IdempotencyConflict, match="another queue"):
        slow.finish()
    assert [stats.queue for stats in store.stats()] == ["b"]


def test_two_slow_publishers_of_one_id_end_with_one_message(store: tampu.Store) -> None:
    one = _stopped(store, _publish("a", 1, id=OWN))
    two = _stopped(store, _publish("b", 2, id=OWN))
    ends = []
    for slow in (one, two):
        try:
            ends += slow.finish()
        except tampu.IdempotencyConflict:
            ends.append(None)
    assert ends.count(None) == 1
    assert sum(stats.ready for stats in store.stats()) == 1


def test_an_own_id_is_free_again_when_its_message_was_removed(store: tampu.Store) -> None:
    store.publish("a", 1, id=OWN)
    store.purge("a", state="ready")
    assert store.publish("b", 2, id=OWN).queue == "b"
    assert store.get(OWN).payload == 2


def test_names_that_are_not_in_use_are_forgotten(store: tampu.Store) -> None:
    engine: Any = access.engine(store)
    clock: Any = engine._clock
    store.publish("a", 1, id=OWN, idempotency_key="i")
    store.purge("a", state="ready")
    kept = store.publish("a", 2, id=OWN.replace("2f", "3f"))
    clock.advance(3 * 86_400)
    for _ in range(3):
        access.core(store).coalescer.submit(port.Trim({}, 60_000_000, 60_000_000, 1000))
    tag = engine.registry.tags.tenant("default")
    names = engine.query(_ask(engine.registry.write.plain("HKEYS", tag, "names")))
    assert names == [b"o" + kept.id.encode()]
    assert store.get(kept.id).payload == 2


@pytest.fixture
def pipelines(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many asks each pipeline has, from now on."""
    sizes: list[int] = []
    send = Wire.send

    def counted(self: Wire, asks: Any, **options: Any) -> Any:
        sizes.append(len(asks))
        return send(self, asks, **options)

    monkeypatch.setattr(Wire, "send", counted)
    return sizes


def test_many_names_are_looked_after_in_a_few_pipelines(store: tampu.Store, pipelines: list[int]) -> None:
    clock: Any = access.engine(store)._clock  # type: ignore[attr-defined]  # a RedisEngine
    own = [str(uuid.UUID(int=n, version=4)) for n in range(300)]
    for queue, some in (("a", own[:100]), ("b", own[100:])):
        store.publish_many(queue, [NewMessage(1, id=id) for id in some])
    store.purge("b", state="ready")
    clock.advance(2 * 86_400)
    pipelines.clear()
    assert access.core(store).coalescer.submit(port.Trim({}, 60_000_000, 60_000_000, 1000)) >= 200
    assert len(pipelines) < 10
    assert store.get(own[0]).queue == "a"
    assert store.publish("b", 2, id=own[200]).duplicate is False


def test_many_messages_are_found_in_a_few_pipelines(store: tampu.Store, pipelines: list[int]) -> None:
    own = [str(uuid.UUID(int=n, version=4)) for n in range(200)]
    ours = [message.id for message in store.publish_many("a", range(50))]
    store.publish_many("b", [NewMessage(1, id=id) for id in own])
    strange = [_made_elsewhere(n) for n in range(50)]
    pipelines.clear()
    outcomes = store.cancel(*own, *ours, *strange)
    assert [outcome.ok for outcome in outcomes] == [True] * 250 + [False] * 50
    assert len(pipelines) < 10
    pipelines.clear()
    assert all(message.duplicate for message in store.publish_many("b", [NewMessage(1, id=id) for id in own]))
    assert len(pipelines) < 10


def _made_elsewhere(n: int) -> str:
    """An id as ours, of a queue that nobody knows."""
    return ids.Ids(n, b"", "").of(f"{1_700_000_000_000:011x}00000")


def _ask(ask: Any) -> Any:
    (reply,) = yield [ask]
    return reply


def _load(queue: str, *numbers: int) -> port.Load:
    bodies = [pack_payload("t", b"%d" % n, "application/json") for n in numbers]
    starts = [0]
    for body in bodies:
        starts.append(starts[-1] + len(body))
    return port.Load("default", queue, ID_PREFIX, numbers, b"".join(bodies), starts, ["t"] * len(numbers), 3)


def _id(number: int) -> str:
    text = ID_PREFIX.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}{number:010x}"


def test_loaded_ids_are_unique_over_queues(store: tampu.Store) -> None:
    run = access.engine(store).run
    assert run([_load("a", 1, 2, 3)]) == [3]
    (refused,) = run([_load("b", 2, 3, 4)])
    assert isinstance(refused, tampu.IdempotencyConflict)
    assert run([_load("b", 4)]) == [1]
    with pytest.raises(tampu.IdempotencyConflict, match="another queue"):
        store.publish("c", "again", id=_id(1))
    store.publish("c", "single", id=_id(9))
    (refused,) = run([_load("a", 8, 9)])
    assert isinstance(refused, tampu.IdempotencyConflict)
    assert run([_load("a", 8)]) == [1]
    assert {m.id for name in "abc" for m in store.messages(name)} == {_id(n) for n in (1, 2, 3, 4, 8, 9)}
    assert [store.get(_id(n)).queue for n in (1, 4, 8, 9)] == ["a", "b", "a", "c"]


def test_who_died_before_loading_leaves_the_ids_free(store: tampu.Store) -> None:
    slow = _stopped(store, _load("a", 1, 2))
    assert access.engine(store).run([_load("b", 1, 2)]) == [2]
    with pytest.raises(tampu.IdempotencyConflict, match="another queue"):
        slow.finish()
    assert [stats.queue for stats in store.stats()] == ["b"]


def test_a_slow_load_is_refused_if_an_id_was_published_meanwhile(store: tampu.Store) -> None:
    slow = _stopped(store, _load("a", 1, 2))
    assert store.publish("b", "mine", id=_id(2)).queue == "b"
    with pytest.raises(tampu.IdempotencyConflict, match="another queue"):
        slow.finish()
    assert [stats.queue for stats in store.stats()] == ["b"]


def test_a_slow_load_stores_all_if_who_asked_for_an_id_died(store: tampu.Store) -> None:
    slow = _stopped(store, _load("a", 1, 2))
    _stopped(store, _publish("b", "mine", id=_id(2)))
    assert slow.finish() == 2
    assert {m.id for m in store.messages("a")} == {_id(1), _id(2)}
    with pytest.raises(tampu.IdempotencyConflict, match="another queue"):
        store.publish("b", "mine", id=_id(2))


def test_loading_again_is_no_conflict_if_the_ids_were_used_elsewhere_since(store: tampu.Store) -> None:
    run = access.engine(store).run
    call = msgspec.structs.replace(_load("a", 1, 2), remember_us=86_400_000_000)
    assert run([call]) == [2]
    store.purge("a", state="ready")
    assert store.publish("b", "mine", id=_id(2)).queue == "b"
    assert run([call]) == [0]
