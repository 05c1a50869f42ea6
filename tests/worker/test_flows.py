"""Flows of tasks: chains, groups and DAGs, additions by a running task, and handing over in one unit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import tampu
from tests.conformance.conftest import EVERY
from tests.conformance.harness import Harness, until
from tests.conformance.served import build


def tasks(app: tampu.App) -> dict[str, tampu.Task[..., object]]:
    """Tasks that the tests put together."""

    @app.task
    def double(n: int) -> int:
        return 2 * n

    @app.task
    async def scale(n: int, by: int) -> int:
        return n * by

    @app.task
    def total(parts: list[int | None], plus: int = 0) -> int:
        return sum(part or 0 for part in parts) + plus

    @app.task(max_attempts=1)
    def fail(n: int = 0) -> int:
        raise tampu.Reject("broken", error=str(n))

    @app.task
    def split(n: int) -> int:
        tampu.current().flow.add(tampu.map(double, range(n)))
        return 0

    return {task.name: task for task in app.tasks.values()}


def test_flows_of_tasks(app: tampu.App) -> None:
    """On each store once: what is built, not what engines promise."""
    made = tasks(app)
    double, scale, total, split = (made[name] for name in ("double", "scale", "total", "split"))
    with tampu.working(app):
        chain = tampu.chain(double.message(4), scale.message(by=10), double.message()).publish()
        fan = tampu.map(double, range(10)).then(total.message(plus=1)).publish(name="fan")
        grown = tampu.chain(split.message(3), total.message()).publish()
        nested = tampu.chain(
            double.message(1), tampu.group([double.message(), tampu.chain(double.message(), double.message())]),
            total.message(), tampu.message("plain"),
        ).publish()  # fmt: skip
        assert (chain.result(60), fan.result(60), grown.result(60)) == (160, 91, 6)
        assert (fan.wait(60).name, fan.get(limit=20).members[-1].parents) == ("fan", 10)
        (lease,) = app.store.claim("plain", wait=60)
        assert lease.payload == 12
        app.store.ack(lease)
        assert nested.wait(60).status == "done"
        assert len(app.store.trace(chain.id)) == 3


def test_a_flow_of_any_shape_and_what_becomes_of_failures(memory: tampu.App) -> None:
    made = tasks(memory)
    double, total, fail = (made[name] for name in ("double", "total", "fail"))
    with tampu.working(memory):
        with memory.flow("nightly") as flow:
            first = flow.add(double.message(1))
            second = flow.add(fail.message(), after=[first])
            flow.add(total.message(), after=[first, second], on_failure="run")
        run = flow.publish()
        assert run.result(60) == 2
        with memory.flow() as flow:
            broken = flow.add(fail.message(7))
            flow.add(double.message(), after=[broken])
        failed = flow.publish()
        assert failed.wait(60).status == "failed"
        with pytest.raises(tampu.FlowFailed, match="1 blocked, 1 dead"):
            failed.result(60)
        assert failed.replay() is failed
        assert failed.wait(60).status == "failed"
        assert failed.cancel().total == 2
        until(lambda: failed.get().status == "cancelled")
        again = run.replay(failed_only=False)
        assert again.id != run.id
        assert again.result(60) == 2
    waiting = tampu.chain(double.message(1)).publish()
    with pytest.raises(TimeoutError, match="1 of 1 are open"):
        waiting.wait(0.01)


def test_flows_for_async_code(memory: tampu.App) -> None:
    made = tasks(memory)

    async def story() -> object:
        run = await tampu.map(made["double"], [1, 2]).then(made["total"].message()).publish_async()
        async with memory.flow("second") as flow:
            flow.add(made["double"].message(1))
        assert (await (await flow.publish_async()).wait_async(60)).status == "done"
        found = await memory.store_async.flows.list(name="second")
        assert len(found.flows) == 1
        assert (await (await run.replay_async(failed_only=False)).wait_async(60)).status == "done"
        result = await run.result_async(60)
        assert (await run.cancel_async()).status == "done"
        return result

    with tampu.working(memory):
        assert asyncio.run(story()) == 6


def test_a_missing_argument_is_refused_outside_of_a_flow(memory: tampu.App) -> None:
    made = tasks(memory)
    with pytest.raises(tampu.InvalidMessage, match="Missing required argument 'n'"):
        memory.publish(made["double"].message())
    with pytest.raises(tampu.InvalidMessage, match="Missing required argument 'n'"):
        tampu.chain(made["double"].message(), made["double"].message()).publish()
    with pytest.raises(tampu.InvalidMessage):
        made["scale"].message()  # two are missing
    with pytest.raises(tampu.InvalidMessage, match="Expected `int`"):
        made["scale"].message(by="x")
    for wrong in (tampu.chain, lambda: tampu.chain(5).publish(memory), lambda: tampu.group([])):
        with pytest.raises(tampu.InvalidMessage):
            wrong()
    with pytest.raises(tampu.InvalidMessage, match="store"):
        tampu.chain(tampu.message("jobs", 1)).publish()
    assert not memory.store.queues.list()


def test_a_flow_that_a_task_publishes_belongs_to_its_story(memory: tampu.App) -> None:
    made = tasks(memory)

    @memory.task
    def begin() -> str:
        return tampu.chain(made["double"].message(1), made["double"].message()).publish().id

    with tampu.working(memory):
        first = begin.publish()
        flow = first.result(60)
        assert memory.store.flows.wait(flow, wait=60).correlation_id == first.id
        assert len(memory.store.trace(first.id)) == 3


@pytest.mark.parametrize("kit", EVERY, ids=lambda kit: kit.name)
def test_a_task_hands_over_in_one_unit(kit: object, tmp_path: Path) -> None:
    """On every store: the ack and what follows take effect together, or not at all."""
    harness: Harness = build(kit, tmp_path)  # type: ignore[arg-type]  # a kit
    app = tampu.App(harness.live())

    @app.task(queue="second")
    def second(n: int) -> None: ...

    @app.task
    async def third(n: int) -> int:
        async with tampu.current().atomic(n) as unit:
            unit.publish(second.message(n))
        return n

    @app.task
    def first(n: int) -> int:
        with tampu.current().atomic(result=n) as unit:
            unit.publish(second.message(n + 1))
            unit.publish("plain", {"n": n}, type="note")
            unit.publish_many([second.message(n + 2)])
        return n

    @app.task
    def broken() -> None:
        with tampu.current().atomic() as unit:
            unit.publish(second.message(9))
            raise tampu.Reject("no")

    try:
        with tampu.working(app, queues={"default": 1}):
            done = first.publish(1)
            assert (done.result(60), third.publish(7).result(60)) == (1, 7)
            with pytest.raises(tampu.TaskFailed):
                broken.publish().result(60)
        found = {m.payload["n"]: m for m in app.store.messages("second")}
        assert sorted(found) == [2, 3, 7]
        assert {found[n].correlation_id for n in (2, 3)} == {done.id} == {found[2].causation_id}
        assert [m.payload for m in app.store.messages("plain")] == [{"n": 1}]
    finally:
        harness.close()
