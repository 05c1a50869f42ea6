"""The async interface: the same names, the same behaviour, awaitable."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import tampu
from tampu import Ack, InvalidState, LeaseLost, NotFound, State, TampuError, Unavailable
from tampu.broker.aio import AsyncQueue, AsyncQueues, AsyncSchedules
from tampu.broker.queue import Queue, Queues, Schedules
from tests.conformance.house import House, payloads

Act = Callable[[AsyncQueue], Awaitable[Any]]


def _run(house: House, act: Act, *, live: bool = False) -> Any:
    async def main() -> Any:
        async with tampu.open_async(**house.opening(live=live)) as q:
            return await act(q)

    return asyncio.run(main())


def _public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_the_names_are_the_same() -> None:
    assert _public(AsyncQueue) == _public(Queue) | {"queues", "schedules"}
    assert _public(AsyncQueues) == _public(Queues)
    assert _public(AsyncSchedules) == _public(Schedules)


@pytest.mark.parametrize("name", sorted(_public(Queue) - {"tenant", "durability", "queues"}))
def test_the_arguments_are_the_same(name: str) -> None:
    plain, awaitable = inspect.signature(getattr(Queue, name)), inspect.signature(getattr(AsyncQueue, name))
    assert list(plain.parameters) == list(awaitable.parameters)


def test_a_message_goes_through_its_life(house: House) -> None:
    async def act(q: AsyncQueue) -> None:
        assert q.tenant == "default"
        message = await q.publish("emails", {"to": "ada"}, type="email.send")
        many = await q.publish_many("emails", range(3))
        a, b, c, d = await q.claim("emails", limit=10, worker="w")
        assert (a.id, b.id) == (message.id, many[0].id)
        assert await q.extend(a, 60) is not None
        await q.ack(a, result=1)
        await q.nack(b, error="x")
        await q.reject(c, reason="bad")
        await q.release(d)
        assert (await q.get(a.id)).result == 1
        stats = await q.stats("emails")
        assert (stats.done, stats.delayed, stats.dead, stats.ready) == (1, 1, 1, 1)
        assert len(await q.replay("emails", where={})) == 1
        assert (await q.cancel(d.id))[0].state is State.CANCELLED
        assert await q.purge("emails", state=["done", "cancelled"]) == 2
        assert len((await q.messages("emails")).messages) == 2
        assert len((await q.journal()).transitions) == 4 + 4 + 4 + 1 + 1 + 2
        held = await q.publish("emails", 1, hold="x")
        assert (await q.free(held.id))[0].ok
        assert all(level != "bad" for _, level, _ in await q.check())

    _run(house, act)


def test_settings_and_states_work(house: House) -> None:
    async def act(q: AsyncQueue) -> None:
        await q.queues.put("emails", max_attempts=2)
        assert (await q.queues.get("emails")).max_attempts == 2
        assert await q.queues.list() == ["emails"]
        await q.publish("emails", 1)
        await q.pause("emails")
        assert await q.claim("emails") == []
        await q.drain("emails")
        with pytest.raises(tampu.QueueClosed):
            await q.publish("emails", 2)
        await q.close_queue("emails")
        await q.resume("emails")
        assert await q.queues.reset("emails")
        assert payloads(await q.claim("emails")) == [1]

    _run(house, act)


def test_errors_are_the_same(house: House) -> None:
    async def act(q: AsyncQueue) -> None:
        with pytest.raises(NotFound):
            await q.get("019b76da-a800-7000-8000-000000000001")
        with pytest.raises(tampu.InvalidMessage):
            await q.publish("bad name", 1)
        await q.publish("emails", 1)
        (lease,) = await q.claim("emails")
        await q.ack(lease)
        await q.ack(lease)
        with pytest.raises(LeaseLost):
            await q.nack(lease)
        assert not (await q.settle([Ack("emails/1.1")]))[0].ok

    _run(house, act)


def test_many_tasks_at_once_all_get_their_own_answers(house: House) -> None:
    async def act(q: AsyncQueue) -> None:
        made = await asyncio.gather(*(q.publish("jobs", n) for n in range(300)))
        assert [m.payload for m in made] == list(range(300))
        claims = await asyncio.gather(*(q.claim("jobs", limit=7) for _ in range(60)))
        leases = [lease for batch in claims for lease in batch]
        assert sorted(payloads(leases)) == list(range(300))
        results = await asyncio.gather(*(q.ack(lease) for lease in leases), q.ack("jobs/1.1"), return_exceptions=True)
        assert [type(r) for r in results] == [type(None)] * 300 + [LeaseLost]
        assert (await q.stats("jobs")).done == 300

    _run(house, act)


def test_wait_is_woken_by_another_task(house: House) -> None:
    async def act(q: AsyncQueue) -> None:
        waiting = [asyncio.create_task(q.claim("emails", wait=240)) for _ in range(3)]
        await asyncio.sleep(0)
        await q.publish_many("emails", range(3))
        got = await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert sorted(p for leases in got for p in payloads(leases)) == [0, 1, 2]
        assert await q.claim("emails", wait=0.01) == []

    _run(house, act, live=True)


def test_wait_is_woken_by_delayed_work_coming_due(house: House) -> None:
    async def act(q: AsyncQueue) -> None:
        waiting = asyncio.create_task(q.claim("emails", wait=240))
        await q.publish("emails", "later", delay=0.2)
        assert payloads(await asyncio.wait_for(waiting, 60)) == ["later"]

    _run(house, act, live=True)


def test_a_cancelled_wait_takes_no_message_with_it(house: House) -> None:
    async def act(q: AsyncQueue) -> None:
        waiting = asyncio.create_task(q.claim("emails", wait=240))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await q.publish("emails", 1)
        assert payloads(await q.claim("emails", wait=30)) == [1]

    _run(house, act, live=True)


def test_transactions_commit_and_roll_back(transactional_house: House) -> None:
    async def act(q: AsyncQueue) -> None:
        async with q.transaction() as tx:
            await tx.execute("CREATE TABLE orders (n INTEGER)")
            await tx.publish("emails", 1)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tested
            async with q.transaction() as tx:
                await tx.publish("emails", 2)
                _ = 1 / 0
        assert (await q.stats("emails")).ready == 1

    _run(transactional_house, act)


def test_not_opened_and_closed_queues_say_so(house: House) -> None:
    async def main() -> None:
        q = tampu.open_async(house.url, keepers=False)
        with pytest.raises(InvalidState):
            await q.publish("emails", 1)
        async with q:
            await q.publish("emails", 1)
        with pytest.raises(Unavailable) as refused:
            await q.publish("emails", 1)
        assert isinstance(refused.value, TampuError)

    asyncio.run(main())


def test_a_stream_gives_leases_and_what_a_cancelled_wait_got_is_for_the_next(house: House) -> None:
    async def act(q: AsyncQueue) -> None:
        async with q.stream("emails", credit=2, worker="w") as stream:
            waiting = asyncio.ensure_future(stream.next())
            await asyncio.sleep(0)
            waiting.cancel()
            assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)
            await q.publish_many("emails", range(3))
            found = []
            async for lease in stream:
                found.append(lease.payload)
                assert (await stream.ack(lease)).ok
                if len(found) == 3:
                    break
            assert await stream.next(0) is None
        assert sorted(found) == [0, 1, 2]
        assert (await q.stats("emails")).done == 3

    _run(house, act)
