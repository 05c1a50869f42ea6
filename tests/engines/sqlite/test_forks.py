"""A file that is open while its process forks: nothing that is acknowledged afterwards, by anybody, is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tampu

_START = """
import os, sqlite3, sys, threading, tampu
from tampu.engines.sqlite import forks
path = sys.argv[1]

def fork(child):
    pid = os.fork()
    if pid:
        return pid
    try:
        child()
    except BaseException as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)

def publish(store, count=50):
    for n in range(count):
        store.publish("jobs", n)
"""


def _run(path: Path, story: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _START + story, str(path), *args],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def _stored(path: Path) -> int:
    with tampu.open(path, maintenance=False) as store:
        assert all(level != "bad" for _, level, _ in store.check())
        return int(store.stats("jobs").ready)


_PARENT_CLOSES = """
store = tampu.open(path)
publish(store, 1)
opened, closed = os.pipe(), os.pipe()

def child():
    mine = tampu.open(path)
    publish(mine, 1)
    os.write(opened[1], b"x")
    os.read(closed[0], 1)
    publish(mine)

pid = fork(child)
os.read(opened[0], 1)
store.close()
os.write(closed[1], b"x")
os.waitpid(pid, 0)
"""


def test_what_a_child_publishes_after_its_parent_closed_is_kept(tmp_path: Path) -> None:
    assert _run(tmp_path / "jobs.db", _PARENT_CLOSES) == ""
    assert _stored(tmp_path / "jobs.db") == 52


_PARENT_DIES = """
store = tampu.open(path)
publish(store, 1)

def child():
    mine = tampu.open(path)
    publish(mine, 1)
    print("opened", flush=True)
    sys.stdin.readline()
    publish(mine)
    print("published", flush=True)

fork(child)
os._exit(0)
"""


def test_what_a_child_publishes_while_others_open_and_close_the_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _START + _PARENT_DIES, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == "opened\n"
        assert _stored(path) == 2
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "published\n"
    assert _stored(path) == 52


_BOTH_GO_ON = """
with tampu.open(path) as store:
    def child():
        with tampu.open(path) as mine:
            publish(mine)

    pids = []
    for _ in range(3):
        publish(store)
        store.stats("jobs")
        pids.append(fork(child))
    publish(store)
    for pid in pids:
        os.waitpid(pid, 0)
    print(store.stats("jobs").ready)
"""


def test_a_parent_goes_on_after_its_forks(tmp_path: Path) -> None:
    assert _run(tmp_path / "jobs.db", _BOTH_GO_ON) == "350\n"
    assert _stored(tmp_path / "jobs.db") == 350


_OTHER_THREAD = """
forks.PATIENCE_SECONDS = 0.1
store = tampu.open(path, maintenance=False)
begun, over = threading.Event(), threading.Event()

def work():
    with store.transaction() as tx:
        tx.publish("jobs", 1)
        begun.set()
        over.wait()

worker = threading.Thread(target=work)
worker.start()
begun.wait()
os.waitpid(fork(lambda: tampu.open(path)), 0)
os.waitpid(fork(lambda: store.transaction().__enter__()), 0)
over.set()
worker.join()
publish(store, 1)
store.close()
os.waitpid(fork(lambda: publish(tampu.open(path), 1)), 0)
"""


def test_a_child_refuses_a_file_that_was_in_the_middle_of_a_transaction(tmp_path: Path) -> None:
    first, second = _run(tmp_path / "jobs.db", _OTHER_THREAD).splitlines()
    assert first.startswith("Unavailable")
    assert "close it before forking" in first
    assert "was opened before a fork" in second
    assert _stored(tmp_path / "jobs.db") == 3


_INSIDE = """
store = tampu.open(path, maintenance=False)
store.publish("jobs", 0)
own = sqlite3.connect(path, isolation_level=None)
for connection in (None, own):
    try:
        with store.transaction(connection) as tx:
            tx.publish("jobs", 1)
            pid = os.fork()
            if pid:
                os.waitpid(pid, 0)
            elif sys.argv[2] == "writes":
                tx.publish("jobs", 2)
    except tampu.Unavailable as error:
        print(error, flush=True)
    if pid == 0:
        os._exit(0)
own.close()
publish(store, 1)
store.close()
"""


@pytest.mark.parametrize("child", ["writes", "leaves"])
def test_only_the_parent_commits_a_transaction_that_was_open_at_a_fork(tmp_path: Path, child: str) -> None:
    printed = _run(tmp_path / "jobs.db", _INSIDE, child).splitlines()
    assert [line.partition(" (")[0] for line in printed] == ["this store was opened before a fork"] * 2
    assert _stored(tmp_path / "jobs.db") == 4


_OWN_CONNECTION = """
store = tampu.open(path, maintenance=False)
publish(store, 1)
own = sqlite3.connect(path)
own.execute("SELECT count(*) FROM sqlite_master").fetchone()
os.waitpid(fork(lambda: tampu.open(path)), 0)
own.close()
os.waitpid(fork(lambda: publish(tampu.open(path), 1)), 0)
store.close()
"""


def test_a_child_refuses_a_file_to_which_the_parent_had_a_connection_of_its_own(tmp_path: Path) -> None:
    assert _run(tmp_path / "jobs.db", _OWN_CONNECTION).startswith("Unavailable")
    assert _stored(tmp_path / "jobs.db") == 2


_WHILE_READING = """
stop = threading.Event()
with tampu.open(path) as store:
    publish(store, 1)

    def read():
        while not stop.is_set():
            store.stats("jobs")

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(10):
        os.waitpid(fork(lambda: publish(tampu.open(path), 1)), 0)
    stop.set()
    for reader in readers:
        reader.join()
"""


def test_a_fork_waits_for_threads_that_read(tmp_path: Path) -> None:
    assert _run(tmp_path / "jobs.db", _WHILE_READING) == ""
    assert _stored(tmp_path / "jobs.db") == 11
