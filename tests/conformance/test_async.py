"""The async interface: the same names, the same behaviour, awaitable."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import tampu
from tampu import Ack, InvalidState, LeaseLost, NotFound, State, TampuError, Unavailable
from tampu.broker.async_store import AsyncQueues, AsyncSchedules, AsyncStore
from tampu.broker.store import Queues, Schedules, Store
from tests.conformance.harness import Harness, payloads

Act = Callable[[AsyncStore], Awaitable[Any]]


def _run(harness: Harness, act: Act, *, live: bool = False) -> Any:
    async def main() -> Any:
        async with tampu.open_async(**harness.opening(live=live)) as store:
            return await act(store)

    return asyncio.run(main())


def _public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_the_names_are_the_same() -> None:
    assert _public(AsyncStore) == _public(Store) | {
        "queues",
        "schedules",
        "followers",
        "agents",
        "alerts",
        "webhooks",
        "holds",
        "patterns",
        "erasures",
        "reviews",
        "topology",
        "dead",
        "schemas",
        "rules",
        "subscriptions",
        "flows",
    }
    assert _public(AsyncQueues) == _public(Queues)
    assert _public(AsyncSchedules) == _public(Schedules)


@pytest.mark.parametrize("name", sorted(_public(Store) - {"tenant", "durability", "queues"}))
def test_the_arguments_are_the_same(name: str) -> None:
    plain, awaitable = inspect.signature(getattr(Store, name)), inspect.signature(getattr(AsyncStore, name))
    assert list(plain.parameters) == list(awaitable.parameters)


def test_a_message_goes_through_its_life(harness: Harness) -> None:
    async def act(store: AsyncStore) -> None:
        assert store.tenant == "default"
        message = await store.publish("emails", {"to": "ada"}, type="email.send")
        many = await store.publish_many("emails", range(3))
        a, b, c, d = await store.claim("emails", limit=10, worker="w")
        assert (a.id, b.id) == (message.id, many[0].id)
        assert await store.extend(a, 60) is not None
        await store.ack(a, result=1)
        await store.nack(b, error="x")
        await store.reject(c, reason="bad")
        await store.release(d)
        assert (await store.get(a.id)).result == 1
        stats = await store.stats("emails")
        assert (stats.done, stats.delayed, stats.dead, stats.ready) == (1, 1, 1, 1)
        assert len(await store.replay("emails", where={})) == 1
        assert (await store.cancel(d.id))[0].state is State.CANCELLED
        assert await store.purge("emails", state=["done", "cancelled"]) == 2
        assert len((await store.messages("emails")).messages) == 2
        assert len((await store.journal()).transitions) == 4 + 4 + 4 + 1 + 1 + 2
        held = await store.publish("emails", 1, hold="x")
        assert (await store.free(held.id))[0].ok
        assert all(level != "bad" for _, level, _ in await store.check())

    _run(harness, act)


def test_settings_and_states_work(harness: Harness) -> None:
    async def act(store: AsyncStore) -> None:
        await store.queues.put("emails", max_attempts=2)
        assert (await store.queues.get("emails")).max_attempts == 2
        assert await store.queues.list() == ["emails"]
        await store.publish("emails", 1)
        await store.pause("emails")
        assert await store.claim("emails") == []
        await store.drain("emails")
        with pytest.raises(tampu.QueueClosed):
            await store.publish("emails", 2)
        await store.close_queue("emails")
        await store.resume("emails")
        assert await store.queues.reset("emails")
        assert payloads(await store.claim("emails")) == [1]

    _run(harness, act)


def test_errors_are_the_same(harness: Harness) -> None:
    async def act(store: AsyncStore) -> None:
        with pytest.raises(NotFound):
            await store.get("019b76da-a800-7000-8000-000000000001")
        with pytest.raises(tampu.InvalidMessage):
            await store.publish("bad name", 1)
        await store.publish("emails", 1)
        (lease,) = await store.claim("emails")
        await store.ack(lease)
        await store.ack(lease)
        with pytest.raises(LeaseLost):
            await store.nack(lease)
        assert not (await store.settle([Ack("emails/1.1")]))[0].ok

    _run(harness, act)


def test_many_tasks_at_once_all_get_their_own_answers(harness: Harness) -> None:
    async def act(store: AsyncStore) -> None:
        made = await asyncio.gather(*(store.publish("jobs", n) for n in range(300)))
        assert [m.payload for m in made] == list(range(300))
        claims = await asyncio.gather(*(store.claim("jobs", limit=7) for _ in range(60)))
        leases = [lease for batch in claims for lease in batch]
        assert sorted(payloads(leases)) == list(range(300))
        results = await asyncio.gather(
            *(store.ack(lease) for lease in leases), store.ack("jobs/1.1"), return_exceptions=True
        )
        assert [type(r) for r in results] == [type(None)] * 300 + [LeaseLost]
        assert (await store.stats("jobs")).done == 300

    _run(harness, act)


def test_wait_is_woken_by_another_task(harness: Harness) -> None:
    async def act(store: AsyncStore) -> None:
        waiting = [asyncio.create_task(store.claim("emails", wait=240)) for _ in range(3)]
        await asyncio.sleep(0)
        await store.publish_many("emails", range(3))
        got = await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert sorted(p for leases in got for p in payloads(leases)) == [0, 1, 2]
        assert await store.claim("emails", wait=0.01) == []

    _run(harness, act, live=True)


def test_wait_is_woken_when_delayed_work_is_due(harness: Harness) -> None:
    async def act(store: AsyncStore) -> None:
        waiting = asyncio.create_task(store.claim("emails", wait=240))
        await store.publish("emails", "later", delay=0.2)
        assert payloads(await asyncio.wait_for(waiting, 60)) == ["later"]

    _run(harness, act, live=True)


def test_a_cancelled_wait_takes_no_message_with_it(harness: Harness) -> None:
    async def act(store: AsyncStore) -> None:
        waiting = asyncio.create_task(store.claim("emails", wait=240))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await store.publish("emails", 1)
        assert payloads(await store.claim("emails", wait=30)) == [1]

    _run(harness, act, live=True)


def test_transactions_commit_and_roll_back(transactional_harness: Harness) -> None:
    async def act(store: AsyncStore) -> None:
        async with store.transaction() as tx:
            await tx.execute("CREATE TABLE orders (n INTEGER)")
            await tx.publish("emails", 1)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tested
            async with store.transaction() as tx:
                await tx.publish("emails", 2)
                _ = 1 / 0
        assert (await store.stats("emails")).ready == 1

    _run(transactional_harness, act)


def test_not_opened_and_closed_stores_say_so(harness: Harness) -> None:
    async def main() -> None:
        store = tampu.open_async(harness.url, maintenance=False)
        with pytest.raises(InvalidState):
            await store.publish("emails", 1)
        async with store:
            await store.publish("emails", 1)
        with pytest.raises(Unavailable) as refused:
            await store.publish("emails", 1)
        assert isinstance(refused.value, TampuError)

    asyncio.run(main())


def test_a_lease_that_a_cancelled_wait_of_a_stream_got_goes_to_the_next(harness: Harness) -> None:
    async def act(store: AsyncStore) -> None:
        async with store.stream("emails", credit=2, worker="w") as stream:
            waiting = asyncio.ensure_future(stream.next())
            await asyncio.sleep(0)
            waiting.cancel()
            assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)
            await store.publish_many("emails", range(3))
            found = []
            async for lease in stream:
                found.append(lease.payload)
                assert (await stream.ack(lease)).ok
                if len(found) == 3:
                    break
            assert await stream.next(0) is None
        assert sorted(found) == [0, 1, 2]
        assert (await store.stats("emails")).done == 3

    _run(harness, act)
