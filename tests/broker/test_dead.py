"""Dead letters across queues, where the engine makes no difference: bounds, races, awaitable twins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.broker.dead import jobs, pages
from tampu.engines.port import Replay
from tampu.testing import FakeClock


def _bury(store: tampu.Store, queue: str, count: int, error: str = "x") -> list[str]:
    ids = [message.id for message in store.publish_many(queue, range(count))]
    store.settle([tampu.Reject(lease, error=error) for lease in store.claim(queue, limit=count)])
    return ids


def test_a_call_reads_a_bounded_number_of_dead_letters_and_its_cursor_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with tampu.open("memory://", maintenance=False) as store:
        _bury(store, "a", 30)
        last = _bury(store, "b", 3, "wanted")
        monkeypatch.setattr(pages, "MOST_READ", 10)
        found, cursor, calls = [], None, 0
        while calls == 0 or cursor is not None:
            page = store.dead.list(error="wanted", after=cursor)
            found += [message.id for message in page]
            cursor, calls = page.cursor, calls + 1
        assert (found, calls) == (last, 4)
        groups = store.dead.groups()
        assert (groups.read, [group.count for group in groups], groups.cursor) == (33, [30, 3], None)
        assert (groups.groups[0].queues, groups.groups[1].sample) == ({"a": 30}, last[-1])
        preview = store.dead.replay(queue="*", dry_run=True)
        assert (preview.count, preview.complete) == (10, False)
        assert store.dead.replay(queue="*").count == 33


def test_an_undo_while_a_page_is_replayed_takes_that_page_back_too() -> None:
    with tampu.open("memory://", maintenance=False, clock=FakeClock()) as store:
        ids = _bury(store, "jobs", 3)
        core = access.core(store)
        made = store.dead.replay(queue="jobs", rate=10)
        id = made.id or ""

        def do(step: Any) -> Any:
            if isinstance(step, Replay):
                store.dead.undo(id)
            return core.do(step)

        core.drive(jobs.advance(core, "default", id), do)
        assert [store.get(one).state for one in ids] == ["dead"] * 3
        assert store.dead.get(id).status == "undone"


def test_a_message_that_dies_again_is_not_replayed_again() -> None:
    clock = FakeClock()
    with tampu.open("memory://", maintenance=False, clock=clock) as store:
        _bury(store, "jobs", 3)
        core = access.core(store)
        id = store.dead.replay(queue="jobs", rate=1).id or ""
        for _ in range(6):
            clock.advance(1)
            core.drive(jobs.advance(core, "default", id))
            for lease in store.claim("jobs", limit=10):
                store.reject(lease, error="again")
        assert (store.dead.get(id).status, store.dead.get(id).count, store.stats("jobs").dead) == ("done", 3, 3)


def test_every_verb_can_be_awaited() -> None:
    async def work() -> None:
        async with tampu.open_async("memory://", maintenance=False) as store:
            await store.publish("jobs", 1)
            await store.reject((await store.claim("jobs"))[0], error="x")
            assert len(await store.dead.list()) == len(await store.dead.groups()) == 1
            made = await store.dead.replay(queue="jobs")
            assert [one.id for one in await store.dead.replays()] == [made.id]
            assert (await store.dead.undo(made.id or "")).undone == 1
            slow = await store.dead.replay(queue="jobs", rate="1/m")
            assert (await store.dead.cancel(slow.id or "")).status == "cancelled"
            assert (await store.dead.get(slow.id or "")).status == "cancelled"
            assert (await store.dead.purge(queue="jobs")).count == 1

    asyncio.run(work())
