"""Claims that wait are carried out by the commit that brings their messages, and are lost to nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

import tampu
from tampu.broker import access
from tampu.broker.commit_queue.waiters import Waiter
from tampu.broker.core import WaitForMessages
from tampu.engines.port import Claim, Publish
from tampu.model.errors import StorageFull
from tests.conformance.harness import until

PLACE = ("default", "jobs")
PATIENCE = 60.0


class Store:
    """A store as a server has it, and what its commits were made of."""

    def __init__(self, store: tampu.Store) -> None:
        self.store = store
        self.core = cast("Any", access.core(store))
        self.core.settings.watched = True
        self.core.settings.get(*PLACE)
        self.commits: list[list[type]] = []
        self.before: Callable[[list[Any]], None] = lambda _calls: None
        run = self.core.engine.run

        def noting(calls: list[Any]) -> Any:
            self.commits.append([type(call) for call in calls])
            self.before(calls)
            return run(calls)

        self.core.engine.run = noting

    def claim(self, **more: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(self.core.drive_async(access.verbs(self.store).claim("jobs", wait=600, **more)))

    async def waits(self, count: int) -> None:
        """Until so many wait, and nothing else is done."""
        async with asyncio.timeout(PATIENCE):
            while len(self.core.waiting._waiters.get(PLACE, ())) != count:
                await asyncio.sleep(0.001)
        self.commits.clear()

    async def publish(self, *values: Any) -> Any:
        return await self.core.drive_async(access.verbs(self.store).publish_many("jobs", values))

    @property
    def ready(self) -> int:
        return int(self.store.stats("jobs").counts.get(tampu.State.READY, 0))


@pytest.fixture
def store() -> Iterator[Store]:
    with tampu.open("memory://", maintenance=False) as store:
        yield Store(store)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE):
            await main()

    asyncio.run(limited())


def test_a_claim_that_waits_gets_its_messages_in_the_commit_of_their_publish(store: Store) -> None:
    async def main() -> None:
        claim = store.claim(limit=5)
        await store.waits(1)
        await store.publish("a", "b")
        assert [lease.payload for lease in await claim] == ["a", "b"]
        assert store.commits == [[Publish, Claim]]

    run(main)


def test_who_is_taken_along_counts_among_the_woken(store: Store) -> None:
    async def main() -> None:
        first, second = store.claim(), store.claim()
        await store.waits(2)
        await store.publish("a")
        assert [lease.payload for lease in await first] == ["a"]
        await store.waits(1)
        assert not store.commits, "the other was not woken for nothing"
        await store.publish("b")
        assert [lease.payload for lease in await second] == ["b"]

    run(main)


def test_the_rest_wakes_others(store: Store) -> None:
    async def main() -> None:
        thread = Waiter([PLACE], None)
        claim = store.claim()
        await store.waits(1)
        store.core.waiting.join(thread)
        await store.publish("a")
        assert not thread.woken
        await claim
        claim = store.claim()
        await store.waits(2)
        await store.publish("b", "c")
        assert thread.woken
        await claim

    run(main)


def test_delayed_messages_take_nobody_along(store: Store) -> None:
    async def main() -> None:
        claim = store.claim()
        await store.waits(1)
        await store.core.drive_async(access.verbs(store.store).publish("jobs", "later", delay=3600))
        assert store.commits == [[Publish]]
        claim.cancel()

    run(main)


def test_a_queue_that_was_paused_meanwhile_is_left_alone(store: Store) -> None:
    async def main() -> None:
        claim = store.claim()
        await store.waits(1)
        await asyncio.to_thread(store.store.queues.put, "jobs", status="paused")
        await store.publish("a")
        assert not any(Claim in commit for commit in store.commits)
        await asyncio.to_thread(store.store.resume, "jobs")
        assert [lease.payload for lease in await claim] == ["a"]

    run(main)


def test_what_was_claimed_for_somebody_who_left_is_given_back(store: Store) -> None:
    async def main() -> None:
        begun, go_on = threading.Event(), threading.Event()

        def wait(calls: list[Any]) -> None:
            if len(calls) > 1:
                begun.set()
                assert go_on.wait(PATIENCE)

        store.before = wait
        claim = store.claim()
        await store.waits(1)
        publish = asyncio.create_task(store.publish("a"))
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        claim.cancel()
        await asyncio.gather(claim, return_exceptions=True)
        assert claim.cancelled()
        go_on.set()
        await publish
        await asyncio.to_thread(until, lambda: store.ready == 1)
        (lease,) = await store.claim()
        assert lease.attempt == 1, "the attempt that nobody saw does not count"

    run(main)


def test_a_wait_that_is_over_while_its_claim_is_made_has_the_messages(store: Store) -> None:
    async def main() -> None:
        claim = store.claim()
        await store.waits(1)
        (waiter,) = store.core.waiting._waiters[PLACE]
        store.before = lambda calls: waiter.wake() if len(calls) > 1 else None
        await store.publish("a")
        assert [lease.payload for lease in await claim] == ["a"]

    run(main)


def test_a_commit_that_failed_leaves_the_claim_waiting(store: Store) -> None:
    async def main() -> None:
        def fail(calls: list[Any]) -> None:
            if len(calls) > 1:
                raise StorageFull("no room")

        store.before = fail
        claim = store.claim()
        await store.waits(1)
        with pytest.raises(StorageFull):
            await store.publish("a")
        store.before = lambda _calls: None
        await store.waits(1)
        await store.publish("b")
        assert [lease.payload for lease in await claim] == ["b"]

    run(main)


def test_only_queues_reported_since_the_claim_are_looked_at(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = access.verbs(store.store).claim("jobs", wait=60)
    assert isinstance(next(steps), Claim)
    pause: Any = steps.send([])
    assert isinstance(pause, WaitForMessages)
    looked: list[Any] = []
    poll_status = store.core.engine.poll_status

    def noting(*of: Any) -> Any:
        looked.append(of)
        return poll_status(*of)

    monkeypatch.setattr(store.core.engine, "poll_status", noting)
    assert not store.core.arrived_since_claim(pause)
    store.store.publish("others", 1)
    assert not store.core.arrived_since_claim(pause)
    assert not looked
    store.store.publish("jobs", 1)
    assert store.core.arrived_since_claim(pause)
    store.store.claim("jobs")
    store.core.on_remote_change()
    assert not store.core.arrived_since_claim(pause)
    assert len(looked) == 2
