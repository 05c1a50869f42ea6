"""Several engines on one database at once: what one process promises holds over all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

import tampu
from tampu import Ack, NewMessage
from tampu.broker import access
from tests.conformance.harness import counts, until

R = TypeVar("R")
MANY = 4


@pytest.fixture
def crew(url: str) -> Iterator[list[tampu.Store]]:
    """Each with connections of its own, as so many processes."""
    opened = [tampu.open(url, maintenance=False) for _ in range(MANY)]
    yield opened
    for store in opened:
        store.close()


def _at_once(crew: list[tampu.Store], work: Callable[[tampu.Store, int], R]) -> list[R | tampu.TampuError]:
    """All of them do it in the same moment; their answers or errors."""
    start = threading.Barrier(len(crew))

    def run(n: int) -> R | tampu.TampuError:
        start.wait(60)
        try:
            return work(crew[n], n)
        except tampu.TampuError as error:
            return error

    with ThreadPoolExecutor(len(crew)) as pool:
        return list(pool.map(run, range(len(crew))))


def test_one_idempotency_key_is_one_message(crew: list[tampu.Store]) -> None:
    for turn in range(10):
        made: Any = _at_once(crew, lambda store, _, t=turn: store.publish("jobs", t, idempotency_key=f"i{t}"))  # type: ignore[misc]
        assert len({m.id for m in made}) == 1
        assert sum(not m.duplicate for m in made) == 1
    assert counts(crew[0], "jobs") == {"ready": 10}


def test_one_id_is_one_message(crew: list[tampu.Store]) -> None:
    own = "2f1e9c1e-7d8c-4c55-9a52-4f1a6a1b2c3d"
    made: Any = _at_once(crew, lambda store, n: store.publish("jobs", n, id=own))
    assert sum(not m.duplicate for m in made) == 1
    assert counts(crew[0], "jobs") == {"ready": 1}


def test_one_key_is_one_waiting_message_with_the_last_payload(crew: list[tampu.Store]) -> None:
    for turn in range(10):
        made: Any = _at_once(crew, lambda store, n, t=turn: store.publish("jobs", [t, n], key="k"))  # type: ignore[misc]
        assert sum(not m.duplicate for m in made) == 1
        (lease,) = crew[0].claim("jobs", limit=5)
        assert lease.payload in [m.payload for m in made]
        crew[0].ack(lease)


def test_a_payload_replaced_while_it_is_claimed_is_delivered_or_published_anew(crew: list[tampu.Store]) -> None:
    """Whatever publish said of a payload: it is delivered."""
    first, second = crew[:2]
    got: list[Any] = []
    for turn in range(40):
        first.publish("jobs", [turn, "old"], key="k")
        answers: Any = _at_once(
            [first, second],
            lambda store, n, t=turn: store.publish("jobs", [t, "new"], key="k") if n else store.claim("jobs"),  # type: ignore[misc]
        )
        leases = [*answers[0], *first.claim("jobs", limit=5)]
        got += [lease.payload for lease in leases]
        assert [turn, "new"] in got, f"turn {turn}: {answers[1]}"
        first.settle([Ack(lease) for lease in leases])


def test_claims_share_nothing_and_leave_nothing(crew: list[tampu.Store]) -> None:
    crew[0].publish_many("jobs", range(2_000))

    def drain(store: tampu.Store, _: int) -> list[str]:
        found: list[str] = []
        while leases := store.claim("jobs", limit=7):
            found += [lease.id for lease in leases]
            store.settle([Ack(lease) for lease in leases])
        return found

    ids: Any = _at_once(crew, drain)
    while crew[0].stats("jobs").ready:  # what others had locked when somebody looked
        ids.append(drain(crew[0], 0))
    flat = [id for found in ids for id in found]
    assert len(flat) == len(set(flat)) == 2_000
    assert counts(crew[0], "jobs") == {"done": 2_000}


def test_max_in_flight_max_depth_and_rate_hold_over_all(crew: list[tampu.Store]) -> None:
    crew[0].queues.put("few", max_in_flight=3)
    crew[0].queues.put("full", max_depth=5)
    crew[0].queues.put("slow", rate=0.001, burst=4)
    for store in crew:
        until(lambda store=store: store.queues.get("slow").rate == 0.001)  # type: ignore[misc]
        access.core(store).settings.forget()
    for name in ("few", "slow"):
        crew[0].publish_many(name, range(20))
        leases: Any = _at_once(crew, lambda store, _, name=name: store.claim(name, limit=2))  # type: ignore[misc]
        assert sum(map(len, leases)) == (3 if name == "few" else 4)
    made = _at_once(crew, lambda store, _: store.publish_many("full", [1, 2]))
    assert sum(isinstance(reply, list) for reply in made) == 2
    assert counts(crew[0], "full") == {"ready": 4}


def test_groups_keep_their_order_whoever_works(crew: list[tampu.Store]) -> None:
    crew[0].queues.put("jobs", group_order=True)
    for store in crew:
        access.core(store).settings.forget()
    done: dict[str, list[int]] = {}
    lock = threading.Lock()

    def work(store: tampu.Store, n: int) -> None:
        store.publish_many("jobs", [NewMessage([n, i], group=f"g{n % 2}") for i in range(15)])
        for _ in range(200):
            for lease in store.claim("jobs", limit=3):
                with lock:
                    done.setdefault(lease.message.group or "", []).append(lease.message.created_us)
                store.ack(lease)

    assert _at_once(crew, work) == [None] * MANY
    while leases := crew[0].claim("jobs", limit=3):
        for lease in leases:
            done.setdefault(lease.message.group or "", []).append(lease.message.created_us)
            crew[0].ack(lease)
    assert counts(crew[0], "jobs") == {"done": MANY * 15}, "no message is held for ever"
    assert sum(map(len, done.values())) == MANY * 15


def test_the_same_ack_twice_at_once_answers_the_same(crew: list[tampu.Store]) -> None:
    for turn in range(20):
        crew[0].publish("jobs", turn)
        (lease,) = crew[0].claim("jobs")
        outcomes: Any = _at_once(crew, lambda store, _, x=lease: store.settle([Ack(x)])[0])  # type: ignore[misc]
        assert [o.state for o in outcomes] == ["done"] * MANY
    verbs = [t.verb for t in crew[0].journal().transitions]
    assert verbs.count("ack") == 20


def test_an_extension_beside_a_settlement_leaves_one_of_the_two(crew: list[tampu.Store]) -> None:
    for turn in range(30):
        crew[0].publish("jobs", turn)
        (lease,) = crew[0].claim("jobs", lease=5)
        _at_once(
            crew[:3],
            lambda store, n, x=lease: store.extend(x, 60) if n else store.nack(x, delay=0, error="x"),  # type: ignore[misc]
        )
        (again,) = crew[0].claim("jobs", limit=5)
        crew[0].ack(again)
    assert [finding for finding in crew[0].check() if finding[1] == "bad"] == []


def test_one_of_them_leads_and_another_when_it_is_gone(url: str) -> None:
    one, two = tampu.open(url, maintenance=False), tampu.open(url, maintenance=False)
    assert access.engine(one).lead()
    assert not access.engine(two).lead()
    assert access.engine(one).lead()
    assert [access.engine(store).poll_status([]).free for store in (one, two)] == [True, False]
    one.close()
    assert access.engine(two).poll_status([]).free
    assert access.engine(two).lead()
    two.close()
