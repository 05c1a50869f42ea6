"""Workers are killed while they hold leases of a queue with limits: by the journal, the limits were always kept."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tampu
from tests.conformance.conftest import SHARED
from tests.conformance.harness import Harness, until
from tests.conformance.served import build
from tests.faults.crew import Nursery

PROCESSES = 4
"""Of four workers each."""
GROUPS, EACH = "abcd", 120
IN_GROUP, IN_QUEUE = 2, 7
RATE, BURST, PACED = 20, 2, 40
STORES = [kit for kit in SHARED if kit.name in ("file", "postgres", "mariadb", "redis", "cluster", "http")]


@pytest.fixture(params=STORES, ids=lambda kit: kit.name)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    built = build(request.param, tmp_path)
    yield built
    built.close()


def test_limits_hold_while_workers_are_killed(harness: Harness, logs: Path, seed: int, long: int) -> None:
    rng = random.Random(seed)
    with harness.live() as store:
        url = harness.url
        store.queues.put(
            "limited", group_concurrency=IN_GROUP, max_in_flight=IN_QUEUE, ordering="fair", max_attempts=1000,
        )  # fmt: skip
        store.queues.put("paced", group_rate=RATE, group_burst=BURST, max_attempts=1000)
        for _ in range(long):
            began = time.monotonic()
            paced = {m.id for m in store.publish_many("paced", [tampu.NewMessage(n, group="a") for n in range(PACED)])}
            groups = {m.id: m.group or "" for name in GROUPS for m in _publish(store, name)}
            with Nursery(url, logs) as nursery:
                for _ in range(PROCESSES):
                    nursery.start("work_within_limits", rng.randrange(10**9))
                for _ in range(6):
                    time.sleep(rng.uniform(0.05, 0.4))  # noqa: TID251 - a kill at any moment is what is tested
                    nursery.kill(rng.choice(nursery.living))
                    nursery.start("work_within_limits", rng.randrange(10**9))
                until(lambda: store.stats("limited").depth == store.stats("paced").depth == 0, 120)
            assert highest(store, groups) == (IN_GROUP, IN_QUEUE)
            assert PACED <= delivered(store, paced) <= BURST + RATE * (time.monotonic() - began)
            for name in ("limited", "paced"):
                store.purge(name, state="done")


def _publish(store: tampu.Store, group: str) -> list[tampu.Message]:
    return store.publish_many("limited", [tampu.NewMessage(n, group=group) for n in range(EACH)])


def delivered(store: tampu.Store, ids: set[str]) -> int:
    """How often one of these was leased, as the journal tells it."""
    found, position = 0, None
    while (page := store.journal(after=position, limit=10_000)).transitions:
        found += sum(transition.verb == "claim" and transition.id in ids for transition in page.transitions)
        position = page.position
    return found


def highest(store: tampu.Store, groups: dict[str, str]) -> tuple[int, int]:
    """How many messages were leased at once, of one group and in all, as the journal tells it."""
    leased: dict[str, str] = {}
    of_group = in_all = done = 0
    position = None
    while True:
        page = store.journal(after=position, limit=10_000)
        for transition in page.transitions:
            if transition.id not in groups:
                continue
            if transition.state is tampu.State.LEASED:
                leased[transition.id] = groups[transition.id]
            else:
                leased.pop(transition.id, None)
                done += transition.verb == "ack"
            in_all = max(in_all, len(leased))
            of_group = max(of_group, *(list(leased.values()).count(group) for group in GROUPS))
        if page.position == position or not page.transitions:
            break
        position = page.position
    assert (done, leased) == (len(groups), {}), "each was done once"
    return of_group, in_all
