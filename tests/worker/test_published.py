"""What one can do with a task that was published: its state, waiting, cancelling, finding it again."""

import asyncio
import inspect
import threading

import pytest

import tampu
from tampu.broker import store as stores
from tampu.worker.tasks import PublishOptions
from tests.worker.crew import PATIENCE


def test_a_published_task_is_followed_cancelled_and_found_by_its_id(app: tampu.App) -> None:
    began, go_on = threading.Event(), threading.Event()

    @app.task(queue="slow")
    def slow() -> int:
        tampu.current().progress(0.5, "half")
        began.set()
        while not tampu.current().cancelled:
            go_on.wait(0.01)
        return 1

    @app.task
    def quick() -> int:
        return 2

    waits = quick.options(delay="1h").publish()
    assert waits.state() is tampu.State.DELAYED
    assert waits.cancel().state is tampu.State.CANCELLED
    assert waits.wait("1m").state is tampu.State.CANCELLED
    with pytest.raises(tampu.TaskFailed):
        waits.result()
    with tampu.working(app):
        runs = slow.publish()
        assert began.wait(PATIENCE)
        assert runs.refresh().state is runs.message.state is tampu.State.LEASED
        with pytest.raises(TimeoutError, match="leased"):
            runs.wait(0)
        assert runs.cancel().ok
        assert runs.wait(PATIENCE).state is tampu.State.CANCELLED
        found = app.find(quick.publish().id)
        assert found.result(PATIENCE) == 2
        assert (found.task, found.message.state) == (quick, tampu.State.DONE)


def test_all_of_it_is_there_for_event_loops(memory: tampu.App) -> None:
    @memory.task
    async def quick() -> int:
        tampu.current().progress(1)
        return 2

    async def main() -> None:
        waits = await quick.options(delay=60).publish_async()
        assert await waits.progress_async() is None
        assert await waits.state_async() is tampu.State.DELAYED
        assert (await waits.cancel_async()).state is tampu.State.CANCELLED
        assert (await waits.wait_async("1m")).state is tampu.State.CANCELLED
        with tampu.working(memory):
            found = await memory.find_async((await quick.publish_async()).id)
            assert await found.result_async(PATIENCE) == 2
            assert (await found.refresh_async()).state is tampu.State.DONE

    asyncio.run(main())
    for name in ("state", "cancel", "wait", "refresh", "result", "progress"):
        twins = [inspect.signature(getattr(tampu.Published, one)) for one in (name, f"{name}_async")]
        assert twins[0] == twins[1], name


def test_what_is_not_of_the_app_is_not_found_and_a_similar_name_is_named(memory: tampu.App) -> None:
    @memory.task
    def send() -> None: ...

    other = memory.store.publish("default", {}, type="sent")
    with pytest.raises(tampu.NotFound, match="no task named sent; did you mean send") as refused:
        memory.find(other.id)
    assert "app.store.get" in str(refused.value.hint)
    with pytest.raises(tampu.NotFound):
        memory.find("01a1eeca-c327-7000-8022-e49b391aeba6")
    with pytest.raises(tampu.InvalidConfig, match="unknown option: priorty; did you mean priority"):
        send.options(priorty=1)  # type: ignore[call-arg]  # on purpose


def test_names_of_other_task_queues_lead_to_publish(memory: tampu.App) -> None:
    @memory.task
    def send() -> None: ...

    for name in ("delay", "apply_async", "send", "enqueue"):
        with pytest.raises(AttributeError, match=rf"a task has no {name}; use \.(options\(.*\)\.)?publish\(…\)"):
            getattr(send, name)
    with pytest.raises(AttributeError, match="a task has no attribute nothing"):
        send.nothing  # type: ignore[attr-defined]  # noqa: B018 - on purpose
    assert not hasattr(send, "__wrapped_by__")


def test_an_app_lists_what_is_public_and_help_shows_what_methods_return(memory: tampu.App) -> None:
    names = dir(memory)
    assert {"task", "publish", "find", "store", "cron"} <= set(names)
    assert not {name for name in names if name.startswith("_")} | {"use", "use_store_at", "running"} & set(names)
    returns = {"publish": "Message", "claim": "list[Lease]", "stats": "Any", "settle": "list[Outcome]"}
    for store in (tampu.Store, tampu.AsyncStore):
        for name, expected in returns.items():
            assert inspect.signature(getattr(store, name)).return_annotation == expected, name
    for part in (*stores.Part.__subclasses__(), tampu.Store, tampu.AsyncStore):
        for name, method in inspect.getmembers(part, inspect.isfunction):
            shown = str(inspect.signature(method))
            assert name.startswith("_") or "Steps[" not in shown, f"{part.__name__}.{name}"
    assert PublishOptions.__annotations__.keys() == set(tampu.NewMessage.__struct_fields__) - {
        "payload",
        "type",
        "content_type",
    } | {"queue"}
