"""Which queue is asked first, and how much is held."""

from collections import Counter
from itertools import pairwise

import pytest

import tampu
from tampu.worker.leases.lease_extender import LeaseTimers
from tampu.worker.prefetch import Prefetch, QueueOrder, parse_queues


def test_turns_are_as_the_weights_say_and_evenly_spread() -> None:
    order = QueueOrder(parse_queues("critical=5,default,low=2"))
    turns = [order.next() for _ in range(80)]
    assert Counter(turn[0] for turn in turns) == {"critical": 50, "default": 10, "low": 20}
    assert Counter(turn[0] for turn in turns[:8]) == {"critical": 5, "default": 1, "low": 2}
    assert all(sorted(turn) == ["critical", "default", "low"] for turn in turns)


def test_strict_order_is_always_the_same() -> None:
    order = QueueOrder(parse_queues(["a", "b=9"]), strict=True)
    assert [order.next() for _ in range(3)] == [["a", "b"]] * 3


@pytest.mark.parametrize("text", ["", "a=", "a=x", "a,,b", "a=0", "a=1001", "a b"])
def test_bad_queues_are_refused(text: str) -> None:
    with pytest.raises(tampu.TampuError):
        QueueOrder(parse_queues(text))


def test_quick_tasks_are_claimed_by_hundreds_and_slow_ones_as_they_can_start() -> None:
    quick = Prefetch(100)
    quick.ran(100, 0.001, 0.001)
    assert quick.to_claim(0) > 500
    assert quick.to_claim(900) == 0  # not a few at a time
    slow = Prefetch(100)
    slow.ran(10, 10 * 60.0, 0.0)
    assert slow.to_claim(0) == 100
    assert slow.to_claim(99) == 1
    assert slow.to_claim(100) == 0
    blocking = Prefetch(100)
    blocking.ran(10, 1.0, 1.0)  # each keeps the loop for a tenth of a second: only one can run at a time
    assert blocking.to_claim(0) < 5


def test_leases_are_due_after_a_third_and_again_after_that() -> None:
    book = LeaseTimers(9.0)
    book.add(["a", "b"], 0.0)
    book.add(["c"], 1.5)
    assert book.due(2.9) == []
    assert book.due(3.0) == ["a", "b"]
    assert book.due(4.5) == ["c"]
    book.remove(["b"])
    assert book.due(6.2) == ["a"]
    book.retry(["a", "b"], 6.2)
    assert book.next() == pytest.approx(6.5)
    assert book.due(7.0) == ["a", "c"]
    assert book.due(10.5) == ["a", "c"]


@pytest.mark.parametrize(("lease", "most"), [(300.0, 1.0), (30.0, 1.0), (3.0, 9.0)])
def test_leases_of_a_worker_are_extended_in_one_commit_a_second_however_they_came(lease: float, most: float) -> None:
    book = LeaseTimers(lease)
    extended: dict[str, list[float]] = {}
    commits, step = [], 0.02
    for tick in range(int(60 / step)):
        now = tick * step
        if now < 30:
            book.add([str(tick)], now)
        due = book.due(now)
        if due:
            commits.append(now)
        for receipt in due:
            extended.setdefault(receipt, [int(receipt) * step]).append(now)
    assert len(commits) <= 60 * most
    assert all(later - earlier <= lease / 3 + step for at in extended.values() for earlier, later in pairwise(at))
