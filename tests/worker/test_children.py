"""Tasks that run in child processes: they can be killed, they have limits, and they are replaced."""

import os
import signal
from pathlib import Path

import pytest

import tampu
from tests.worker import shop
from tests.worker.crew import wait


@pytest.fixture
def app(shop_app: tampu.App) -> tampu.App:
    return shop_app


def test_child_that_dies_while_it_waits_for_work_costs_no_attempt(app: tampu.App) -> None:
    once = shop.who.options(max_attempts=1)
    with tampu.working(app, children=1):
        pid = once.publish().result(90)
        os.kill(pid, signal.SIGKILL)
        wait(lambda: _gone(pid))
        published = once.publish()
        assert published.result(90) != pid
    assert app.store.get(published.id).failures == ()


def test_child_knows_its_message_and_the_store_of_its_worker(
    app: tampu.App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "url", tmp_path / "other.db")  # as `tampu --url other.db work` does
    with tampu.working(app, children=1):
        published = shop.look_around.publish()
        attempt, left = published.result(90)
        assert left is not None
        assert (attempt, 0 < left <= 60) == (1, True)
        wait(lambda: app.store.stats("default").done == 2)


def test_child_cannot_publish_into_the_memory_of_its_worker(app: tampu.App) -> None:
    with (
        tampu.working(app, children=1),
        pytest.raises(tampu.TaskFailed, match="the store is in the memory of the worker"),
    ):
        shop.look_around.options(max_attempts=1).publish().result(90)


def test_task_that_a_child_cannot_import_fails_and_says_so(memory: tampu.App) -> None:
    @memory.task(execution="process", max_attempts=1)
    def inner() -> None: ...

    with tampu.working(memory), pytest.raises(tampu.TaskFailed, match="must be defined at module level"):
        inner.publish().result(90)


def test_child_is_killed_at_the_timeout(app: tampu.App) -> None:
    with tampu.working(app), pytest.raises(tampu.TaskFailed, match=r"ran for longer than 0\.3 s"):
        shop.never_ends.publish().result(90)


def test_child_over_its_memory_fails_that_attempt_only(app: tampu.App) -> None:
    with tampu.working(app, memory=300, children=1):
        with pytest.raises(tampu.TaskFailed, match="MemoryError"):
            shop.allocate.publish(2_000).result(90)
        assert shop.allocate.publish(1).result(90) == 1 << 20


def test_child_is_replaced_after_so_many_messages(app: tampu.App) -> None:
    with tampu.working(app, recycle=2, children=1):
        pids = [shop.who.publish().result(90) for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_checkpoint_survives_the_child(app: tampu.App) -> None:
    with tampu.working(app):
        assert shop.resume.publish(6).result(90) == [3, 6]


def test_cancelled_child_is_killed(app: tampu.App, tmp_path: Path) -> None:
    with tampu.working(app, lease=6):
        published = shop.wait_process.publish(1)
        wait((tmp_path / "effects").exists)
        app.store.cancel(published.id)
        with pytest.raises(tampu.TaskFailed, match="cancelled"):
            published.result(90)


def test_children_end_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    from tests.worker.crew import crew

    with tampu.open(tmp_path / "jobs.db") as store, crew(str(tmp_path / "jobs.db"), tmp_path) as made:
        store.publish_many("default", [shop.wait_process.message(1).new])
        worker = made.start()
        wait(lambda: made.count("begun") == 1)
        ((_, id, child, _),) = made.effects()
        wait(lambda: worker.says(f"waits  task=wait_process  message_id={id}  attempt=1  n=1"))
        worker.kill()
        wait(lambda: _gone(child))


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
