"""Units over several slots of a cluster: whoever dies between two steps, all of it is there in the end, and once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.broker.core import Core
from tampu.broker.store import AllVerbs
from tampu.engines import port
from tampu.engines.redis.engine import RedisEngine
from tampu.engines.redis.queue_registry import RunContext
from tampu.engines.redis.verbs import units
from tampu.model.errors import Unavailable
from tampu.testing import FakeClock
from tests.servers import redis

NAME = "a-name-drawn-at-random"


class ClusterStore:
    """A store on a cluster, opened by as many processes as a test wants."""

    def __init__(self) -> None:
        self.url = redis.cluster.url()
        self.clock = FakeClock()
        self.engines: list[RedisEngine] = []
        self.store = tampu.open(self.url, clock=self.clock, maintenance=False)
        self.core: Core = access.core(self.store)

    def engine(self) -> RedisEngine:
        made = RedisEngine(self.url, clock=self.clock)
        self.engines.append(made)
        return made

    def close(self) -> None:
        for engine in self.engines:
            engine.close()
        self.store.close()

    def unit(self, *, name: str | None = NAME, **fields: Any) -> port.Together:
        """An ack, and what it brings about in two other queues and a document."""
        self.store.publish("jobs", "work")
        lease = self.store.claim("jobs", lease=86_400)[0]
        made = AllVerbs(self.core, "default")
        members = [
            made.settle_member(tampu.Ack(lease)),
            made.publish_member("mails", [1, tampu.NewMessage(2, delay=60, **fields)]),
            made.publish_member("bills", [3]),
            made.document_member("cursor", "x", b"7", None),
        ]
        return port.Together("default", members, name, 600_000_000 if name else 0)

    def send(self, *acts: Callable[[tampu.Unit], Any]) -> None:
        with self.store.atomic() as unit:
            for act in acts:
                act(unit)

    def seen(self) -> tuple[str, list[Any], list[Any], Any]:
        """What there is of the unit."""
        document = self.store.get_document("cursor", "x")
        (job,) = self.store.messages("jobs")
        return (
            str(job.state),
            [m.payload for m in self.store.messages("mails")] if "mails" in self.store.queues.list() else [],
            [m.payload for m in self.store.messages("bills")] if "bills" in self.store.queues.list() else [],
            None if document is None else document.value,
        )

    def maintain(self) -> None:
        """What maintenance of another process does within seconds."""
        self.clock.advance(6)
        engine = self.engine()
        while True:
            (swept,) = engine.run([port.Sweep(100)])
            assert isinstance(swept, port.Swept)
            if not swept.moved:
                assert swept.next_us is None or swept.next_us > self.clock.now()
                return


NOTHING: tuple[str, list[Any], list[Any], Any] = ("leased", [], [], None)
ALL: tuple[str, list[Any], list[Any], Any] = ("done", [1, 2], [3], 7)


@pytest.fixture
def cluster() -> Iterator[ClusterStore]:
    made = ClusterStore()
    yield made
    made.close()


def advance(engine: RedisEngine, asking: Any, steps: int) -> bool:
    """Carry out so many steps of an operation, then die; whether it was over before."""
    try:
        asks = next(asking)
        for _ in range(steps):
            asks = asking.send(engine.wire.send(asks))
    except StopIteration:
        return True
    return False


def steps_of_a_unit(**fields: Any) -> int:
    """How many steps a unit takes on a fresh store."""
    cluster = ClusterStore()
    try:
        unit = cluster.unit(**fields)
        engine = cluster.engine()
        asking = units.together(RunContext(engine.registry), unit)
        steps = 0
        try:
            asks = next(asking)
            while True:
                steps += 1
                asks = asking.send(engine.wire.send(asks))
        except StopIteration:
            return steps
    finally:
        cluster.close()


FIELDS: dict[str, dict[str, Any]] = {"plain": {}, "own id": {"id": "01890a5d-ac96-774b-bcce-b302099a8057"}}


@pytest.mark.parametrize("fields", FIELDS)
def test_who_dies_between_two_steps_leaves_all_or_nothing(fields: str) -> None:
    most = steps_of_a_unit(**FIELDS[fields])
    assert most >= 7
    found = []
    for steps in range(most + 1):
        cluster = ClusterStore()
        try:
            unit = cluster.unit(**FIELDS[fields])
            engine = cluster.engine()
            advance(engine, units.together(RunContext(engine.registry), unit), steps)
            cluster.maintain()
            found.append(cluster.seen())
            (again,) = cluster.engine().run([unit])
            assert isinstance(again, list)
            assert [len(reply) for reply in again[:3]] == [1, 2, 1]
            assert cluster.seen() == ALL
            cluster.maintain()
            assert cluster.seen() == ALL
        finally:
            cluster.close()
    decided = found.index(ALL)
    assert 0 < decided < most, "some die before it is decided, and some after"
    assert found == [NOTHING] * decided + [ALL] * (len(found) - decided)


def test_maintenance_that_dies_is_followed_by_another(cluster: ClusterStore) -> None:
    unit = cluster.unit(name=None)
    engine = cluster.engine()
    asking = units.together(RunContext(engine.registry), unit)
    steps = 0
    while cluster.seen() == NOTHING:  # until it is decided
        asking = units.together(RunContext(engine.registry), unit)
        steps += 1
        advance(engine, asking, steps)
    assert cluster.seen() != ALL
    for dies_after in range(1, 12):
        cluster.clock.advance(6)
        flat = engine.wire.send(
            [engine._write.script("select_intents", engine.registry.tags.queue("default", "jobs"), 100)]
        )[0]
        over = advance(
            engine,
            units.complete_all(RunContext(engine.registry), engine.registry.tags.queue("default", "jobs"), flat),
            dies_after,
        )
        if not flat and over:
            break
    assert cluster.seen() == ALL
    cluster.maintain()
    assert cluster.seen() == ALL


def test_nothing_is_left_of_a_unit_that_is_over(cluster: ClusterStore) -> None:
    engine = cluster.engine()
    assert isinstance(engine.run([cluster.unit(name=None)])[0], list)
    tags = [
        engine.registry.tags.registry,
        *(engine.registry.tags.queue("default", name) for name in ("jobs", "mails", "bills")),
    ]
    asks = [
        engine._write.plain("EXISTS", tag, key)
        for tag in tags
        for key in ("units", "units.until", "intents", "intents.at")
    ]
    assert not any(engine.wire.send(asks))


def test_a_server_that_is_away_gets_its_part_when_it_is_back(cluster: ClusterStore) -> None:
    unit = cluster.unit()
    engine = cluster.engine()
    asking = units.together(RunContext(engine.registry), unit)

    def send(asks: Any) -> Any:
        away = cluster.seen()[0] == "done"
        return asking.send([Unavailable("away")] * len(asks) if away else engine.wire.send(asks))

    def send_all() -> None:
        asks = next(asking)
        while True:
            asks = send(asks)

    with pytest.raises(Unavailable, match="the unit is accepted"):
        send_all()
    assert cluster.seen() == ("done", [], [], None)
    cluster.maintain()
    assert cluster.seen() == ALL


def test_a_due_intent_is_reported_to_maintenance(cluster: ClusterStore) -> None:
    unit = cluster.unit()
    engine = cluster.engine()
    asking = units.together(RunContext(engine.registry), unit)
    asks = next(asking)
    while cluster.seen() == NOTHING:
        asks = asking.send(engine.wire.send(asks))
    due = engine.next_due()
    assert due is not None
    assert due <= cluster.clock.now() + 2_000_000
    assert engine.poll_status(()).due_us == due


def test_a_unit_that_begins_with_a_document_is_found_too(cluster: ClusterStore) -> None:
    made = AllVerbs(cluster.core, "default")
    unit = port.Together(
        "default", [made.document_member("cursor", "x", b"7", 0), made.publish_member("mails", [1])], NAME, 600_000_000
    )
    engine = cluster.engine()
    asking = units.together(RunContext(engine.registry), unit)
    asks = next(asking)
    while cluster.store.get_document("cursor", "x") is None:
        asks = asking.send(engine.wire.send(asks))
    assert "mails" not in cluster.store.queues.list()
    due = engine.poll_status(()).due_us
    assert due is not None
    assert engine.next_due() == due
    cluster.maintain()
    assert [m.payload for m in cluster.store.messages("mails")] == [1]


def test_only_one_queue_may_hold_calls_that_can_be_refused(cluster: ClusterStore) -> None:
    for queue in ("jobs", "others"):
        cluster.store.publish(queue, 1)
    first, second = cluster.store.claim("jobs")[0], cluster.store.claim("others")[0]
    acts: tuple[Callable[[tampu.Unit], Any], ...] = (
        lambda unit: unit.ack(second),
        lambda unit: unit.cancel(second.id),
        lambda unit: unit.put_document("cursor", "x", 1, version=0),
        lambda unit: unit.publish("others", 1, idempotency_key="k"),
    )
    for act in acts:
        with pytest.raises(tampu.InvalidState, match="all be in one queue"):
            cluster.send(lambda unit: unit.ack(first), act)
    assert cluster.store.get(first.id).state == "leased"


def test_a_full_queue_in_another_slot_refuses_a_unit(cluster: ClusterStore) -> None:
    cluster.store.queues.put("mails", max_depth=2)
    unit = cluster.unit()
    assert isinstance(cluster.engine().run([unit])[0], list)
    assert isinstance(cluster.engine().run([unit])[0], list), "it is not refused for what it has stored itself"
    cluster.store.publish("jobs", 1)
    lease = cluster.store.claim("jobs")[0]
    with pytest.raises(tampu.QueueFull):
        cluster.send(lambda unit: unit.ack(lease), lambda unit: unit.publish("mails", 3))
    assert cluster.store.get(lease.id).state == "leased"


def test_a_cluster_says_that_units_are_eventual(cluster: ClusterStore) -> None:
    assert "atomic:eventual" in cluster.engine().capabilities
    assert "atomic:isolated" not in cluster.engine().capabilities
    alone = RedisEngine(redis.redis.url())
    try:
        assert "atomic:isolated" in alone.capabilities
        assert "atomic:eventual" not in alone.capabilities
    finally:
        alone.close()
