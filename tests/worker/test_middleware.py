"""What stands around tasks: middleware, transactions of their own, and the picture of a worker."""

import base64
import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from rich.console import Console

import tampu
from tampu.worker.process.live import View, shown, snapshot
from tests.conformance.conftest import TRANSACTIONAL
from tests.conformance.harness import Harness, Kit
from tests.conformance.served import build
from tests.worker.crew import PATIENCE, wait


class Noting(tampu.Middleware):
    """Notes who is called when."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self._name, self._notes = name, notes

    def publish(self, new: tampu.NewMessage, task: tampu.Task[Any, Any]) -> tampu.NewMessage:
        self._notes.append(f"{self._name} publish {task.name}")
        return msgspec.structs.replace(new, labels={**(new.labels or {}), self._name: "yes"})

    def receive(self, message: tampu.Message) -> tampu.Message:
        self._notes.append(f"{self._name} receive")
        return message

    @contextlib.contextmanager
    def run(self, current: tampu.Current) -> Iterator[None]:
        self._notes.append(f"{self._name} before {current.attempt}")
        try:
            yield
        except BaseException as error:
            self._notes.append(f"{self._name} {type(error).__name__}")
            raise
        self._notes.append(f"{self._name} after")


class Hidden(tampu.Middleware):
    """As encryption would: nobody but the worker sees the arguments."""

    def publish(self, new: tampu.NewMessage, _task: tampu.Task[Any, Any]) -> tampu.NewMessage:
        return msgspec.structs.replace(
            new, payload=base64.b85encode(new.payload), content_type="application/octet-stream"
        )

    def receive(self, message: tampu.Message) -> tampu.Message:
        return msgspec.structs.replace(
            message, body=msgspec.structs.replace(message.body, payload=base64.b85decode(message.raw))
        )


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_middleware_stands_around_publish_and_run_in_its_order(kind: str) -> None:
    notes: list[str] = []
    with tampu.App("memory://", middleware=[Noting("outer", notes), Noting("inner", notes)]) as app:

        def fail() -> None:
            raise tampu.Reject("no")

        async def fail_async() -> None:
            raise tampu.Reject("no")

        task: Any = app.task(name="fail")(fail if kind == "sync" else fail_async)
        published = task.publish()
        assert published.message.labels == {"outer": "yes", "inner": "yes"}
        with tampu.working(app), pytest.raises(tampu.TaskFailed):
            published.result(60)
    assert notes == [
        "outer publish fail", "inner publish fail", "inner receive", "outer receive",
        "outer before 1", "inner before 1", "inner Reject", "outer Reject",
    ]  # fmt: skip


def test_middleware_may_change_what_travels_and_what_it_cannot_undo_is_dead() -> None:
    with tampu.App("memory://", middleware=[Hidden()]) as app:

        @app.task
        def double(n: int) -> int:
            return 2 * n

        published = double.publish(21)
        assert b"21" not in published.message.raw
        spoilt = app.store.publish("default", b"\xff", type="double")
        with tampu.working(app):
            assert published.result(60) == 42
            assert app.store.result(spoilt.id, wait=60).reason == "decode_failed"


@pytest.fixture(params=[kit for kit in TRANSACTIONAL if kit.name in ("file", "postgres")], ids=lambda k: k.name)
def sql_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    kit: Kit = request.param
    built = build(kit, tmp_path)
    yield built
    built.close()


def _shop(harness: Harness) -> tampu.App:
    app = tampu.App(harness.live())
    with app.transaction() as tx:
        tx.execute("CREATE TABLE orders (item TEXT)")
    return app


def _ordered_once(app: tampu.App, order: tampu.Task[[str], str]) -> None:
    """By a task whose first attempt fails just before its commit."""
    with tampu.working(app):
        published = order.publish("tea")
        assert published.result(60) == "tea"
        wait(lambda: app.store.stats("mails").done == 1)
    with app.transaction() as tx:
        assert [tuple(row) for row in tx.execute("SELECT item FROM orders").fetchall()] == [("tea",)]
    assert app.store.get(published.id).attempts == 2
    assert app.store.stats("mails").depth == 0


def test_effect_publish_and_ack_of_a_task_are_one_transaction(sql_harness: Harness) -> None:
    app = _shop(sql_harness)
    failed = threading.Event()

    @app.task(queue="mails")
    def mail(item: str) -> str:
        return item

    @app.task(backoff=[0])
    def order(item: str) -> str:
        with app.transaction() as tx:
            tx.execute(f"INSERT INTO orders VALUES ('{item}')")
            tx.publish(mail.message(item))
            tx.ack(item)
            _fail_once(failed)
        return item

    _ordered_once(app, order)


def test_effect_publish_and_ack_of_an_async_task_are_one_transaction(sql_harness: Harness) -> None:
    app = _shop(sql_harness)
    failed, seen = threading.Event(), list[str]()

    @app.task(queue="mails")
    async def mail(item: str) -> str:
        return item

    @app.task(backoff=[0])
    async def order(item: str) -> str:
        async with app.transaction_async() as tx:
            await tx.execute(f"INSERT INTO orders VALUES ('{item}')")
            await tx.publish(mail.message(item))
            await tx.ack(item)
            _fail_once(failed)
            try:
                await mail.publish_async("outside")
            except tampu.InvalidState as error:  # it would wait for the end of this block
                seen.append(str(error))
        return item

    _ordered_once(app, order)
    assert [text.partition(" (")[0] for text in seen] == ["this task is inside a transaction"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_task_joins_the_transaction_of_a_connection_of_its_own(sql_harness: Harness, kind: str) -> None:
    app = _shop(sql_harness)
    failed = threading.Event()

    @app.task(queue="mails")
    def mail(item: str) -> str:
        return item

    def order(item: str) -> str:
        with _connection(sql_harness) as mine, app.transaction(mine) as tx:
            mine.execute(f"INSERT INTO orders VALUES ('{item}')")
            tx.publish(mail.message(item))
            tx.ack(item)
            _fail_once(failed)
        return item

    async def order_async(item: str) -> str:
        with _connection(sql_harness) as mine:
            async with app.transaction_async(mine) as tx:
                await tx.execute(f"INSERT INTO orders VALUES ('{item}')")
                await tx.publish(mail.message(item))
                await tx.ack(item)
                _fail_once(failed)
        return item

    task: Any = app.task(name="order", backoff=[0])(order if kind == "sync" else order_async)
    _ordered_once(app, task)


def _connection(harness: Harness) -> Any:
    """The user's, to the same store."""
    if harness.url.startswith("postgresql"):
        base, _, rest = harness.url.partition("?schema=")
        return psycopg.connect(f"{base}?{rest.partition('&')[2]}")
    return contextlib.closing(sqlite3.connect(harness.url, check_same_thread=False))


def _fail_once(failed: threading.Event) -> None:
    if not failed.is_set():
        failed.set()
        raise OSError("before the commit")


def test_picture_of_a_worker_tells_tasks_and_queues(memory: tampu.App) -> None:
    @memory.task(queue="jobs")
    def work(n: int) -> None:
        if n == 2:
            began.set()
            go_on.wait(PATIENCE)
        if n:
            raise tampu.Reject("odd")

    began, go_on = threading.Event(), threading.Event()
    console = Console(record=True, width=120, file=None, force_terminal=True, quiet=False)
    with tampu.working(memory) as runner, shown(lambda: [snapshot(runner)], console):
        memory.publish_many([work.message(n) for n in (0, 1)])
        wait(lambda: runner.done == 2)
        console.print(View().draw([snapshot(runner)]))
        work.publish(2)
        assert began.wait(PATIENCE)
        assert snapshot(runner).running == {"work": 1}
        go_on.set()
    text = console.export_text()
    assert "working" in text
    assert "2 ended" in text
    rows = [[part.strip() for part in line.strip("│ ").split("│")] for line in text.splitlines() if "│ work" in line]
    assert ["work", "0", "1", "0", "1", "0", "0"] in rows
    assert any("│ jobs" in line for line in text.splitlines())
