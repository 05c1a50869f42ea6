"""Workers that are killed, stopped, starved or cut off from their store: nothing is lost or completed twice."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import pytest

import tampu
from tampu.broker.store import Store
from tampu.model.times import SECOND
from tests.conformance.harness import Harness, Kit
from tests.conformance.served import build
from tests.worker import shop
from tests.worker.conftest import SHARED
from tests.worker.crew import Crew, completions, crew, wait

MANY = 1_000


class Scene:
    def __init__(self, harness: Harness, crew: Crew) -> None:
        self.store: Store = harness.live()
        self.crew = crew

    def publish(self, task: tampu.Task[[int], int], count: int) -> list[str]:
        news = [task.message(n).new for n in range(count)]
        return [message.id for message in self.store.publish_many("default", news)]


Story = Callable[[Scene], None]


class SideBySide(Protocol):
    def __call__(self, story: Story, *, but: str = "") -> None: ...


@pytest.fixture
def scene(shared_harness: Harness, tmp_path: Path) -> Iterator[Scene]:
    with _set(shared_harness, tmp_path) as made:
        yield made


@contextlib.contextmanager
def _set(harness: Harness, folder: Path) -> Iterator[Scene]:
    store = harness.live()  # so that the url is that of the live store
    with crew(harness.url, folder) as made:
        yield Scene(harness, made)
    store.close()


@contextlib.contextmanager
def _scene(kit: Kit, folder: Path) -> Iterator[Scene]:
    folder.mkdir()
    harness = build(kit, folder)
    try:
        with _set(harness, folder) as made:
            yield made
    finally:
        harness.close()


@pytest.fixture
def on_every_store(tmp_path: Path) -> SideBySide:
    """Runs a story on a store of each kind, side by side: what is mostly waiting takes as long as one."""

    def run(story: Story, *, but: str = "") -> None:
        kits = [kit for kit in SHARED if kit.name != but]
        assert [kit.name for kit in kits] == [name for name in ("file", "postgres", "redis", "http") if name != but]
        with contextlib.ExitStack() as stack:
            scenes = {kit.name: stack.enter_context(_scene(kit, tmp_path / kit.name)) for kit in kits}
            with ThreadPoolExecutor(len(scenes)) as pool:
                running = {name: pool.submit(story, scene) for name, scene in scenes.items()}
            for name, done in running.items():
                if (failed := done.exception()) is not None:
                    failed.add_note(f"on {name}")
                    raise failed

    return run


def test_killed_worker_with_a_thousand_in_flight_loses_nothing(scene: Scene) -> None:
    ids = scene.publish(shop.wait_async, MANY)
    first = scene.crew.start("--concurrency", str(MANY), "--lease", "4")
    wait(lambda: scene.crew.count("begun") >= MANY)
    first.kill()
    scene.crew.open_gate()
    second = scene.crew.start("--concurrency", str(MANY), "--lease", "4")
    wait(lambda: scene.store.stats("default").done == MANY)
    assert second.stop() == 0
    assert completions(scene.store) == dict.fromkeys(ids, 1)
    assert {attempt for _, _, _, attempt in scene.crew.effects()} >= {1, 2}


def test_stopped_worker_loses_its_leases_and_its_late_acks_are_refused(on_every_store: SideBySide) -> None:
    def story(scene: Scene) -> None:
        ids = scene.publish(shop.wait_async, 20)
        first = scene.crew.start("--lease", "3")
        wait(lambda: scene.crew.count("begun") >= 20)
        first.send(signal.SIGSTOP)
        second = scene.crew.start("--lease", "3", "--concurrency", "20")
        wait(lambda: scene.crew.count("begun") >= 40)  # the leases ran out, although the lease keeper was never stopped
        scene.crew.open_gate()
        wait(lambda: scene.store.stats("default").done == 20)
        first.send(signal.SIGCONT)
        wait(lambda: first.says("came too late") or first.says("lease lost"))
        assert second.stop() == 0
        assert first.stop() == 0
        assert completions(scene.store) == dict.fromkeys(ids, 1)
        assert scene.store.stats("default").done == 20

    on_every_store(story)


def test_task_that_holds_the_interpreter_for_longer_than_its_lease_runs_once(on_every_store: SideBySide) -> None:
    def story(scene: Scene) -> None:
        (id,) = (m.id for m in scene.store.publish_many("default", [shop.hold_interpreter.message(8.0).new]))
        holder = scene.crew.start("--lease", "5")
        wait(lambda: scene.crew.count("begun") >= 1)
        other = scene.crew.start("--lease", "5")  # would have it at once, if the lease ran out
        wait(lambda: other.says("is working"))  # and hears when it is to stop
        assert scene.store.result(id, wait=90).result == holder.process.pid
        assert (holder.stop(), other.stop()) == (0, 0)
        assert [line[0] for line in scene.crew.effects()] == ["begun", "ended"]
        assert completions(scene.store) == {id: 1}

    on_every_store(story)


def test_task_of_16_seconds_with_a_lease_of_5_runs_once(on_every_store: SideBySide) -> None:
    def story(scene: Scene) -> None:
        scene.store.publish_many("default", [shop.takes.message(16.0).new])
        worker = scene.crew.start("--lease", "5")
        wait(lambda: scene.store.stats("default").done == 1)
        ((begun, id, _, attempt), ended) = scene.crew.effects()
        assert (begun, attempt, ended[0]) == ("begun", 1, "ended")
        found = scene.store.get(id)
        assert (found.state, found.attempts) == ("done", 1)
        assert worker.stop() == 0

    on_every_store(story)


def test_five_workers_fire_and_carry_out_each_tick_of_a_schedule_once(on_every_store: SideBySide) -> None:
    def story(scene: Scene) -> None:
        scene.crew.open_gate()
        crew = [scene.crew.start("--lease", "5") for _ in range(5)]  # what the killed one holds comes back soon
        wait(lambda: all(worker.says("is working") for worker in crew))
        made = scene.store.schedules.put(
            "s", queue="default", payload={"n": 1}, type="wait_async", every=1, limit=6, missed="all(1000)"
        )
        wait(lambda: scene.store.schedules.get("s").fired >= 2)
        crew.pop().kill()
        crew.append(scene.crew.start("--lease", "5"))
        wait(lambda: scene.store.schedules.get("s").status == "ended")
        wait(lambda: scene.store.stats("default").done == 6)
        found = sorted(message.headers["tampu-tick"] for message in scene.store.messages("default", limit=100))
        assert found == [(made.created_at + timedelta(seconds=n)).isoformat() for n in range(1, 7)]
        assert [worker.stop() for worker in crew] == [0] * 5
        assert set(completions(scene.store).values()) == {1}

    on_every_store(story)


def test_worker_whose_clock_jumps_an_hour_keeps_its_lease_and_its_timeout(on_every_store: SideBySide) -> None:
    """Where the store's clock is its own; of a file, see below."""

    def story(scene: Scene) -> None:
        (id,) = (m.id for m in scene.store.publish_many("default", [shop.through_jumps.message(4.5).new]))
        jumper = scene.crew.start("--lease", "4")
        wait(lambda: scene.crew.count("begun") >= 1)
        other = scene.crew.start("--lease", "4")  # would have it at once, if the lease ran out
        wait(lambda: other.says("is working"))  # and hears when it is to stop
        message = scene.store.result(id, wait=90)
        assert (message.result, message.attempts) == (jumper.process.pid, 1)
        later = scene.publish(shop.wait_async, 20)  # the one that is an hour behind works on
        scene.crew.open_gate()
        wait(lambda: scene.store.stats("default").done == 21)
        assert (jumper.stop(), other.stop()) == (0, 0)
        assert completions(scene.store) == dict.fromkeys([id, *later], 1)

    on_every_store(story, but="file")


class Jumping:
    """The clock of a machine that somebody sets."""

    ahead = 0

    def now(self) -> int:
        return time.time_ns() // 1000 + self.ahead


def test_machine_whose_clock_jumps_an_hour_completes_all_work_of_its_file_once(tmp_path: Path) -> None:
    """All who use a file have one clock, and a jump ahead may end their leases: work may begin twice, but ends once."""
    clock, begun, go = Jumping(), list[int](), threading.Event()
    path = tmp_path / "jobs.db"

    def work(n: int) -> int:
        begun.append(n)
        assert go.wait(90)
        return n

    with tampu.App(path, clock=clock) as app, tampu.App(path, clock=clock) as other:
        app.store.queues.put("default", max_attempts=1000)  # leases are short, and a busy machine may lose several
        task = app.task(name="work")(work)
        other.task(name="work")(work)
        news = [task.message(n) for n in range(20)]
        published = app.publish_many([*news, task.options(delay=1800).message(20)])
        with tampu.working(app, lease=4), tampu.working(other, lease=4):
            wait(lambda: len(set(begun)) == 20)
            clock.ahead = 3600 * SECOND
            wait(lambda: 20 in begun)  # everybody has noticed
            go.set()
            assert [one.result(90) for one in published] == list(range(21))
            clock.ahead = -3600 * SECOND
            later = app.publish_many(news)
            assert [one.result(90) for one in later] == list(range(20))
        assert completions(app.store) == dict.fromkeys((one.id for one in (*published, *later)), 1)


def test_children_that_run_out_of_memory_are_tried_again_or_dead_and_harm_nobody(scene: Scene) -> None:
    """The test does as the kernel does: it looks at who has grown too large, and kills it."""
    large, last = shop.grow.message(80).new, shop.grow.options(max_attempts=1).message(80).new
    news = [shop.wait_process.message(1).new, large, last]
    neighbour, again, dead = (m.id for m in scene.store.publish_many("default", news))
    worker = scene.crew.start("--children", "3")
    wait(lambda: (scene.crew.count("begun"), scene.crew.count("grown")) == (1, 2))
    before = {id: pid for _, id, pid, _ in scene.crew.effects()}
    for id in (again, dead):
        pages = int(Path(f"/proc/{before[id]}/statm").read_text().split()[1])
        assert pages * os.sysconf("SC_PAGE_SIZE") > 80 << 20
        os.kill(before[id], signal.SIGKILL)
    found = [scene.store.result(id, wait=90) for id in (again, dead)]
    assert [(m.state, m.reason, m.attempts) for m in found] == [("done", None, 2), ("dead", "retries_exhausted", 1)]
    assert found[0].result not in before.values()
    for message in found:
        (failure,) = message.failures
        assert "ChildDied" in (failure.error or "")
        assert "killed by SIGKILL, perhaps out of memory" in (failure.error or "")
    scene.crew.open_gate()
    unharmed = scene.store.result(neighbour, wait=90)
    assert (unharmed.state, unharmed.attempts) == ("done", 1)
    assert {pid for _, id, pid, _ in scene.crew.effects() if id == neighbour} == {before[neighbour]}
    assert worker.stop() == 0


@pytest.mark.parametrize("task", [shop.wait_async, shop.wait_thread, shop.wait_process], ids=lambda task: task.name)
def test_graceful_stop_finishes_what_runs_and_gives_back_the_rest_uncounted(
    scene: Scene, task: tampu.Task[[int], int]
) -> None:
    ids = scene.publish(task, 12)
    worker = scene.crew.start("--concurrency", "4", "--children", "4")
    wait(lambda: scene.crew.count("begun") >= 4)
    begun = {line[1] for line in scene.crew.effects()}
    worker.send(signal.SIGTERM)
    wait(lambda: worker.says("stopped claiming"))
    scene.crew.open_gate()
    assert worker.process.wait(90) == 0
    begun |= {line[1] for line in scene.crew.effects()}
    assert 4 <= len(begun) < 12
    for id in ids:
        found = scene.store.get(id)
        assert (found.state, found.attempts) == (("done", 1) if id in begun else ("ready", 0))


def test_what_does_not_finish_within_the_grace_period_is_given_back_uncounted(scene: Scene) -> None:
    tasks = [shop.wait_async, shop.wait_thread, shop.wait_process]
    ids = [scene.store.publish_many("default", [task.message(1).new])[0].id for task in tasks]
    worker = scene.crew.start("--grace", "0.2", "--children", "1")
    wait(lambda: scene.crew.count("begun") >= 3)
    assert worker.stop() == 0
    assert [(scene.store.get(id).state, scene.store.get(id).attempts) for id in ids] == [("ready", 0)] * 3
    assert scene.crew.count("ended") == 0
