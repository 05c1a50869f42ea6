"""Several processes on one file: nothing lost or doubled, one process leads, another takes over."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tampu
from tampu import InvalidConfig, State
from tampu.broker import access
from tampu.engines.sqlite import SqliteEngine
from tests.conformance.harness import payloads, until

WORK = """
import sys, tampu
path, me = sys.argv[1], int(sys.argv[2])
with tampu.open(path, maintenance=False) as store:
    for n in range(0, 60, 3):
        store.publish("jobs", [me, n])
        store.publish_many("jobs", [[me, n + 1], [me, n + 2]])
        for lease in store.claim("jobs", limit=3):
            print(*lease.payload, flush=True)
            store.ack(lease)
    empty = 0
    while empty < 3:
        leases = store.claim("jobs", limit=10, wait=0.2)
        empty = 0 if leases else empty + 1
        for lease in leases:
            print(*lease.payload, flush=True)
        store.settle([tampu.Ack(lease) for lease in leases])
"""


def test_processes_publishing_and_claiming_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    workers = [
        subprocess.Popen([sys.executable, "-c", WORK, path, str(n)], stdout=subprocess.PIPE, text=True)
        for n in range(3)
    ]
    seen: Counter[str] = Counter()
    for worker in workers:
        out, _ = worker.communicate(timeout=120)
        assert worker.returncode == 0
        seen.update(out.splitlines())
    assert seen == Counter({f"{me} {n}": 1 for me in range(3) for n in range(60)})
    with tampu.open(path, maintenance=False) as store:
        assert store.stats("jobs").done == 180
        assert all(level != "bad" for _, level, _ in store.check())


KEEP = """
import sys, tampu
from tampu.broker import access
store = tampu.open(sys.argv[1])
while not access.engine(store).lead():
    pass
print("leads", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", KEEP, str(tmp_path / "jobs.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "leads\n"
    yield process
    process.kill()
    process.wait(60)
    process.stdin.close()
    process.stdout.close()


def test_only_one_process_leads_and_does_the_work_for_all(tmp_path: Path, leader: subprocess.Popen[str]) -> None:
    with tampu.open(tmp_path / "jobs.db") as store:
        assert not access.engine(store).lead()
        message = store.publish("jobs", 1, delay=0.1)
        until(lambda: store.get(message.id).state is State.READY)
        assert not access.engine(store).lead()


def test_when_the_leading_process_is_killed_another_takes_over(tmp_path: Path, leader: subprocess.Popen[str]) -> None:
    with tampu.open(tmp_path / "jobs.db") as store:
        message = store.publish("jobs", 1, delay=0.3)
        leader.send_signal(signal.SIGKILL)
        leader.wait(60)
        until(lambda: store.get(message.id).state is State.READY)
        assert access.engine(store).lead()


def test_two_openings_in_one_process_have_one_leader(tmp_path: Path) -> None:
    one, two = (SqliteEngine(str(tmp_path / "jobs.db")) for _ in range(2))
    assert (one.lead(), two.lead(), one.lead()) == (True, False, True)
    one.close()
    assert two.lead()
    two.close()


HOLD = """
import sys, tampu
store = tampu.open(sys.argv[1], maintenance=False)
lease = store.claim("jobs", lease=float(sys.argv[2]), worker="doomed")[0]
print(lease.receipt, flush=True)
sys.stdin.read()
"""


def test_a_killed_worker_s_message_comes_back_to_another_process(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    with tampu.open(path) as store:
        message = store.publish("jobs", 1)
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, path, "0.5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as worker:
            assert worker.stdout is not None
            stale = worker.stdout.readline().strip()
            worker.kill()
        (lease,) = store.claim("jobs", wait=240)
        assert (lease.id, lease.attempt) == (message.id, 2)
        with pytest.raises(tampu.LeaseLost):
            store.ack(stale)
        store.ack(lease)


def test_the_companions_are_the_ones_we_name(tmp_path: Path) -> None:
    with tampu.open(tmp_path / "jobs.db") as store:
        store.publish("jobs", 1)
        until((tmp_path / "jobs.db-keeper").exists)
        names = {p.name for p in tmp_path.iterdir()}
    assert names == {f"jobs.db{end}" for end in ("", "-wal", "-shm", "-gate", "-keeper")}


def test_removing_the_lock_files_of_a_closed_queue_is_harmless(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    for n in range(3):
        with tampu.open(path) as store:
            store.publish("jobs", n)
        for end in ("-gate", "-keeper"):
            Path(f"{path}{end}").unlink(missing_ok=True)
    with tampu.open(path, maintenance=False) as store:
        assert payloads(store.claim("jobs", limit=10)) == [0, 1, 2]


def test_open_files_do_not_leak(tmp_path: Path) -> None:
    def handles() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names of links

    with tampu.open(tmp_path / "jobs.db") as store:
        store.publish("jobs", 1)
    before = handles()
    for _ in range(5):
        with tampu.open(tmp_path / "jobs.db") as store:
            store.stats("jobs")
    assert handles() <= before


def test_the_log_does_not_grow_without_end(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with tampu.open(path, maintenance=False, durability="process") as store:
        for _ in range(60):
            store.publish_many("jobs", [b"x" * 4000] * 100)
            store.settle([tampu.Ack(lease) for lease in store.claim("jobs", limit=100)])
        log = Path(f"{path}-wal").stat().st_size
    assert log < 3 * 4000 * 4200
    assert not Path(f"{path}-wal").exists()


def test_readers_see_whole_commits_while_others_write(tmp_path: Path) -> None:
    stop = threading.Event()
    with tampu.open(tmp_path / "jobs.db", maintenance=False, durability="process") as store:
        store.publish_many("jobs", range(10))

        def write() -> None:
            while not stop.is_set():
                leases = store.claim("jobs", limit=10)
                store.settle([tampu.Nack(lease, delay=0) for lease in leases] or [])
                for lease in leases:
                    if lease.attempt > 3:
                        store.replay("jobs", where={})

        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(100):
            assert sum(store.stats("jobs").counts.values()) == 10
        stop.set()
        writer.join(60)


def _own(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, timeout=60)
    db.execute("CREATE TABLE IF NOT EXISTS orders (n INTEGER)")
    return db


def test_joining_the_user_s_connection_commits_with_it(tmp_path: Path) -> None:
    with tampu.open(tmp_path / "jobs.db", maintenance=False) as store:
        db = _own(tmp_path / "jobs.db")
        with store.transaction(db) as tx:
            db.execute("INSERT INTO orders VALUES (1)")
            tx.publish("emails", 1)
        assert not db.in_transaction
        assert store.stats("emails").ready == 1
        with pytest.raises(ZeroDivisionError), store.transaction(db) as tx:  # noqa: PT012 - the block is what is tested
            db.execute("INSERT INTO orders VALUES (2)")
            tx.publish("new.queue", 2)
            _ = 1 / 0
        assert db.execute("SELECT n FROM orders").fetchall() == [(1,)]
        assert store.queues.list() == ["emails"]
        db.close()


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_transaction_the_user_began_is_the_user_s_to_end(tmp_path: Path, end: str) -> None:
    with tampu.open(tmp_path / "jobs.db", maintenance=False) as store:
        store.publish("emails", 0)
        lease = store.claim("emails")[0]
        db = _own(tmp_path / "jobs.db")
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO orders VALUES (1)")
        with store.transaction(db) as tx:
            tx.publish("new.queue", 1)
            tx.ack(lease)
        assert db.in_transaction
        assert store.get(lease.id).state is State.LEASED
        db.execute(end)
        done = end == "COMMIT"
        assert store.get(lease.id).state is (State.DONE if done else State.LEASED)
        assert store.queues.list() == (["emails", "new.queue"] if done else ["emails"])
        assert db.execute("SELECT count(*) FROM orders").fetchone() == (int(done),)
        store.publish("new.queue", 2)
        assert store.stats("new.queue").ready == 1 + done
        db.close()


def test_a_connection_to_another_file_is_refused(tmp_path: Path) -> None:
    with tampu.open(tmp_path / "jobs.db", maintenance=False) as store:
        other = sqlite3.connect(tmp_path / "other.db")
        for bad in (other, "jobs.db", 5):
            with pytest.raises(InvalidConfig), store.transaction(bad):
                pass
        other.close()
