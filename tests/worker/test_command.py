"""`tampu work`: its signals, its exit codes, its signs of life, and several processes."""

import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.worker.current import Current
from tampu.worker.outages import Outages
from tampu.worker.process import run
from tampu.worker.settle_queue import SettleQueue
from tampu.worker.task_store import LocalTaskStore
from tests.servers.ports import free_port
from tests.worker import shop
from tests.worker.crew import PATIENCE, Crew, crew, wait
from tests.worker.nursery import ROOT


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Crew]:
    with crew(str(tmp_path / "jobs.db"), tmp_path, as_a_shell=True) as made:
        yield made


@pytest.fixture
def store(made: Crew) -> Iterator[tampu.Store]:
    with tampu.open(made.url) as store:
        yield store


def test_second_signal_ends_at_once(made: Crew, store: tampu.Store) -> None:
    (message,) = store.publish_many("default", [shop.wait_thread.message(1).new])
    worker = made.start()
    wait(lambda: made.count("begun") == 1)
    worker.send(signal.SIGTERM)
    wait(lambda: worker.says("stopped claiming"))
    worker.send(signal.SIGTERM)
    assert worker.process.wait(PATIENCE) == 1
    assert made.count("ended") == 0
    assert store.get(message.id).state in ("ready", "leased")


def test_signs_of_life(made: Crew, store: tampu.Store, tmp_path: Path) -> None:
    port = free_port()
    worker = made.start("--alive-file", str(tmp_path / "alive"), "--alive-port", str(port))

    def answers(path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as found:
                return int(found.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    wait(lambda: answers("/ready") == 200)
    assert answers("/live") == 200
    wait((tmp_path / "alive").exists)
    first = (tmp_path / "alive").stat().st_mtime_ns
    wait(lambda: (tmp_path / "alive").stat().st_mtime_ns > first)
    store.publish_many("default", [shop.wait_thread.message(1).new])
    wait(lambda: made.count("begun") == 1)
    worker.send(signal.SIGTERM)
    wait(lambda: answers("/ready") == 503)  # no more work for this one
    assert answers("/live") == 200  # but do not kill it: it finishes what it has
    made.open_gate()
    assert worker.process.wait(PATIENCE) == 0


def test_worker_is_neither_live_nor_ready_when_its_loop_is_stuck(
    memory: tampu.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocking, go = threading.Event(), threading.Event()

    @memory.task
    async def block() -> None:
        blocking.set()
        assert go.wait(PATIENCE)

    with tampu.working(memory) as runner:
        assert (run.live(runner), run.ready(runner)) == (True, True)
        block.publish()
        assert blocking.wait(PATIENCE)
        monkeypatch.setattr(run, "_STUCK_SECONDS", 0.0)
        assert (run.live(runner), run.ready(runner)) == (False, False)
        go.set()


def test_store_that_cannot_be_used_at_the_start_is_exit_code_5(tmp_path: Path) -> None:
    with crew(f"redis://127.0.0.1:{free_port()}/0", tmp_path, as_a_shell=True) as made:
        worker = made.start()
        assert worker.process.wait(PATIENCE) == 5
        assert worker.says("cannot reach 127.0.0.1")


@pytest.mark.parametrize("alone", [False, True], ids=["all", "one by one"])
def test_work_that_could_not_be_settled_at_the_end_is_counted_and_exit_code_1(
    memory: tampu.App, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    def gone(settlements: list[Any]) -> list[tampu.Outcome]:
        if alone:  # as Redis tells it
            return [tampu.Outcome(None, None, tampu.Unavailable("gone")) for _ in settlements]
        raise tampu.Unavailable("gone")

    task = memory.task(name="work")(lambda: None)
    task.publish()
    (lease,) = memory.store.claim("default")
    monkeypatch.setattr(memory.store, "settle", gone)
    settle_queue = SettleQueue(memory.store, Outages(), lambda _: None)
    settle_queue.put(Current(lease, task, LocalTaskStore(memory.store, 30)), tampu.Ack(lease))
    settle_queue.close(0.1)
    assert settle_queue.left == 1

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        for left, code in ((settle_queue.left, 1), (0, 0)):
            runner = tampu.Runner(memory)
            monkeypatch.setattr(runner, "run", lambda left=left: left)
            assert run.run(runner, run.HealthChecks()) == code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_worker_that_dies_is_replaced_and_all_are_stopped_together(made: Crew, store: tampu.Store) -> None:
    store.publish_many("default", [shop.wait_async.message(n).new for n in range(2)])
    boss = made.start("--processes", "2", "--concurrency", "1", "--lease", "4")
    wait(lambda: len({line[2] for line in made.effects()}) == 2)
    victim = made.effects()[0][2]
    subprocess.run(["kill", "-KILL", str(victim)], check=True)
    wait(lambda: len({line[2] for line in made.effects()}) == 3)  # its message is begun by the one that took its place
    made.open_gate()
    wait(lambda: store.stats("default").done == 2)
    assert boss.stop() == 0
    assert boss.says(f"worker {victim} ended with -9")


def test_several_workers_are_seen_as_one(made: Crew, store: tampu.Store) -> None:
    store.publish_many("default", [shop.wait_async.message(n).new for n in range(40)])
    boss = made.start("--processes", "2", "--concurrency", "1", "--live")
    wait(lambda: len({line[2] for line in made.effects()}) == 2)
    made.open_gate()
    wait(lambda: store.stats("default").done == 40)
    assert boss.stop() == 0
    text = boss.log.read_text()  # no terminal: only the last picture is drawn
    assert "2 workers · 0 held · 40 ended" in text
    assert text.count("· ended ·") == 2
    row = next(line for line in text.splitlines() if "│ wait_async" in line)
    assert [part.strip() for part in row.strip("│ ").split("│")] == ["wait_async", "0", "40", "0", "0", "0", "0"]
    assert any("│ default" in line for line in text.splitlines())


def test_code_that_changes_is_loaded_anew(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    module = folder / "changing.py"
    text = "import tampu\napp = tampu.App({!r})\n@app.task\ndef tell() -> str:\n    return {!r}\n"
    url = str(tmp_path / "jobs.db")
    module.write_text(text.format(url, "old"))
    log = tmp_path / "log"
    with log.open("wb") as out, tampu.open(url) as store:
        worker = subprocess.Popen(
            [sys.executable, "-c", "from tampu.cli.main import main; main()", "work", "changing:app", "--reload"],
            cwd=folder, stderr=out,
        )  # fmt: skip
        try:
            assert store.result(store.publish("default", {}, type="tell").id, wait=PATIENCE).result == "old"
            module.write_text(text.format(url, "the new one"))
            wait(
                lambda: (
                    store.result(store.publish("default", {}, type="tell").id, wait=PATIENCE).result == "the new one"
                )
            )
        finally:
            worker.send_signal(signal.SIGINT)
            assert worker.wait(PATIENCE) == 0, log.read_text()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["no.such.module:app"], "module no.such.module not found"),
        (["tests.worker.shop:missing"], "tests.worker.shop has no missing"),
        (["tests.worker.shop:note"], "is not a tampu.App"),
        (["tests.worker.shop:app", "--queues", "a=b"], "'a=b' is not a queue or queue=weight"),
        (["tests.worker.shop:app", "--concurrency", "0"], "concurrency must be between"),
        (["tests.worker.shop:app", "--unknown", "drop"], "unknown must be retry or reject"),
    ],
)
def test_what_is_wrong_is_said_and_is_exit_code_2(arguments: list[str], expected: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from tampu.cli.main import main; main()", "work", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, expected in done.stderr) == (2, True), done.stderr


def test_worker_is_replaced_after_so_many_messages(made: Crew, store: tampu.Store) -> None:
    made.open_gate()
    boss = made.start("--process-recycle", "2")
    for n in range(2):
        store.publish_many("default", [shop.wait_async.message(n).new, shop.wait_thread.message(n).new])
        wait(lambda: made.count("ended") == 2 * n + 2)  # noqa: B023 - called at once
        wait(lambda: boss.log.read_text().count("another worker takes over") == n + 1)  # noqa: B023
    assert len({pid for _, _, pid, _ in made.effects()}) == 2
    assert boss.stop() == 0
    assert store.stats("default").done == 4


def test_worker_that_uses_too_much_memory_stops_claiming(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = tampu.Runner(tampu.App("memory://"))
    used = 99 << 20
    monkeypatch.setattr(run, "resident", lambda: used)
    pulse = run._pulse(runner, run.HealthChecks(), run.Limits(memory=100))
    pulse()
    assert not runner._stop_early
    used = 101 << 20
    pulse()
    assert runner._stop_early
