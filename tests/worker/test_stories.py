"""What a task publishes is part of the story of its message, whatever way it publishes."""

import asyncio
import threading
from pathlib import Path

import tampu


def test_what_a_task_publishes_has_the_correlation_id_of_its_message(app: tampu.App) -> None:
    @app.task(queue="children")
    def child(_name: str) -> None: ...

    @app.task(queue="parents")
    def parent() -> None:
        child.publish("task")
        app.publish_many([child.message("many"), child.options(correlation_id="own").message("own")])
        app.store.publish("plain", "plain")
        app.store.publish_many("plain", ["many", tampu.NewMessage("keyed", idempotency_key="one")])
        with app.store.atomic() as unit:
            unit.publish("plain", "unit")

    @app.task(queue="parents")
    async def parent_async() -> None:
        await child.publish_async("task")
        await app.store_async.publish("plain", "plain")

    with tampu.working(app, queues={"parents": 1}):
        first, second = parent.options(correlation_id="story").publish(), parent_async.publish()
        first.result(60)
        second.result(60)
    found = {
        (message.queue, message.correlation_id, message.causation_id, message.parent_id)
        for queue in ("children", "plain")
        for message in app.store.messages(queue)
    }
    assert found == {
        ("children", "story", first.id, first.id), ("children", "own", first.id, first.id),
        ("plain", "story", first.id, first.id),
        ("children", second.id, second.id, second.id), ("plain", second.id, second.id, second.id),
    }  # fmt: skip
    assert len(app.store.trace("story")) == 7, "the parent, two children and four others"
    assert len(app.store.trace(second.id)) == 3
    assert app.store.publish("plain", "outside").correlation_id is None


def test_the_same_key_from_two_tasks_is_one_message(memory: tampu.App) -> None:
    @memory.task
    def parent() -> str:
        return memory.store.publish("orders", 1, idempotency_key="once").id

    with tampu.working(memory):
        first, second = parent.publish(), parent.publish()
        assert first.result(60) == second.result(60)


def test_each_of_many_concurrent_tasks_has_its_own_story(memory: tampu.App) -> None:
    met = threading.Barrier(2)

    @memory.task(queue="threads")
    def waits() -> str | None:
        met.wait(60)
        return memory.store.publish("out", 1).causation_id

    @memory.task(queue="loop")
    async def yields() -> str | None:
        await asyncio.sleep(0)
        return (await memory.store_async.publish("out", 1)).causation_id

    with tampu.working(memory, concurrency=4):
        for task in (waits, yields):
            published = [task.publish() for _ in range(2)]
            assert [one.result(60) for one in published] == [one.id for one in published]


def test_transactions_of_tasks_continue_the_story(tmp_path: Path) -> None:
    with tampu.App(tmp_path / "jobs.db") as app:

        @app.task(queue="children")
        def child() -> None: ...

        @app.task
        def parent() -> None:
            with app.transaction() as tx:
                tx.publish(child.message())

        @app.task
        async def parent_async() -> None:
            async with app.transaction_async() as tx:
                await tx.publish(child.message())

        with tampu.working(app, queues={"default": 1}):
            published = parent.publish(), parent_async.publish()
            for one in published:
                one.result(60)
        causes = {message.causation_id for message in app.store.messages("children")}
        assert causes == {one.id for one in published}
