"""Slots that move between the servers of a cluster: calls follow them, or wait, and nothing is lost on the way."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis.crc import key_slot

import tampu
from tampu.engines.redis import wire
from tampu.engines.redis.node import Patience
from tampu.engines.redis.wire import Wire
from tests.conformance.house import payloads
from tests.engines.redis.resharding import Move, ask, owns
from tests.servers.redis import Trio, redis_binary

TAG = "{tampu:default:moving}"


@pytest.fixture
def trio() -> Iterator[Trio]:
    made = Trio(redis_binary()).start()
    yield made
    made.remove()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "Patience", lambda: Patience(0.1))


@pytest.fixture(autouse=True)
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call goes round and round: with pauses that grow, there are some thirty within the time it has."""
    send, go = Wire.send, Wire._round
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
    monkeypatch.setattr(Wire, "_round", counted_round)


def test_a_slot_that_moved_is_followed_though_only_its_servers_know(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tampu.open(trio.url(), keepers=False) as q:
        q.publish("before", 0)
        engine: Any = q._core.engine
        monkeypatch.setattr(engine._wire.route, "refresh", lambda: None)  # as if asked of one that has not heard of it
        move = Move(trio, TAG)
        move.tell(move.target, move.source)
        monkeypatch.setattr(Patience, "wait", lambda _: pytest.fail("it was told where"))
        q.publish("moving", 1)
        assert ask(move.target, "CLUSTER COUNTKEYSINSLOT", move.slot) > 0
        assert payloads(q.claim("moving")) == [1]


@pytest.mark.usefixtures("impatient")
def test_servers_that_name_each_other_are_not_asked_for_ever(trio: Trio) -> None:
    with tampu.open(trio.url(), keepers=False) as q:
        move = Move(trio, TAG)
        move.tell(move.source)  # it names the target, which names the source
        with pytest.raises(tampu.Unavailable, match="moving this queue"):
            q.publish("moving", 1)
        move.tell(move.target)
        q.publish("moving", 2)
        assert payloads(q.claim("moving", limit=2)) == [2]


def test_a_url_that_names_one_server_of_a_cluster_is_refused_with_what_to_do(trio: Trio) -> None:
    other = next(server for server in trio.servers if not owns(server, key_slot(b"{tampu}")))
    with pytest.raises(tampu.Unavailable) as refused:
        tampu.open(other.url())
    assert "redis+cluster://" in str(refused.value.hint)
