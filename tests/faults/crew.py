"""The crew of the kill tests: processes that publish and work on one file until they are killed.

`Nursery` starts them by forking a process that has everything imported, so a fresh one is there in milliseconds, and
tells when one is gone. All tests of a process share the one that is forked. Each member of the crew appends what it
knows to a log of its own, a line per call that returned.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tampu
import tampu.engines.mariadb
import tampu.engines.postgres  # engines are imported when a url asks for them; here they must be there before the fork
import tampu.engines.redis
from tampu.broker import followers
from tampu.broker.followers import Effects
from tampu.model.journal import Transition

ROOT = Path(__file__).parents[2]
LEASE_SECONDS = 0.4
QUEUES = ("work", "lanes")


class Nursery:
    """Starts, stops and kills processes of the crew; a context manager that leaves none behind."""

    def __init__(self, url: str | Path, logs: Path) -> None:
        self._url, self._logs = url, logs
        self._born = 0
        self.living: list[int] = []

    def start(self, role: str, seed: int = 0) -> int:
        self._born += 1
        log = self._logs / f"{self._born:04}-{role}.log"
        pid = _ask("start", role, str(self._url), str(log), seed, dict(os.environ))
        self.living.append(pid)
        return pid

    def kill(self, pid: int) -> None:
        """SIGKILL; returns when the process is gone."""
        self.living.remove(pid)
        ended = _ask("kill", pid)
        assert ended == -signal.SIGKILL, f"it had ended by itself: {ended}"

    def wait_stopped(self, pid: int) -> None:
        assert _ask("wait_stopped", pid), "the process ended instead"

    def wait_ended(self, pid: int) -> None:
        self.living.remove(pid)
        assert _ask("wait_ended", pid) == 0

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        ended = {pid: _ask("kill", pid) for pid in self.living}
        self.living.clear()
        assert set(ended.values()) <= {-signal.SIGKILL}, f"some had ended by themselves: {ended}"


@functools.cache
def _forked() -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.faults.crew"]
    made = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close() -> None:
        with made:
            assert made.stdin is not None
            made.stdin.close()

    atexit.register(close)
    return made


def _ask(*request: Any) -> int:
    process = _forked()
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(request), file=process.stdin, flush=True)
    return int(process.stdout.readline())


def serve() -> None:
    """The nursery's own process. When the test is gone, so is the crew."""
    for line in sys.stdin:
        verb, *rest = json.loads(line)
        print(_SERVICES[verb](*rest), flush=True)
    for pid in list(_children):
        _kill(pid)


_children: set[int] = set()


def _start(role: str, url: str, log: str, seed: int, environment: dict[str, str]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            os.environ.clear()
            os.environ.update(environment)
            ROLES[role](url, Log(log), random.Random(seed))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _children.add(pid)
    return pid


def _kill(pid: int) -> int:
    os.kill(pid, signal.SIGKILL)
    return _wait_ended(pid)


def _wait_ended(pid: int) -> int:
    _children.discard(pid)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _wait_stopped(pid: int) -> int:
    return int(os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]))


_SERVICES: dict[str, Callable[..., int]] = {
    "start": _start,
    "kill": _kill,
    "wait_ended": _wait_ended,
    "wait_stopped": _wait_stopped,
}


class Log:
    """Lines that are with the system as soon as they are written; a kill may cut the last one short."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *lines: tuple[Any, ...]) -> None:
        os.write(self._file, "".join(json.dumps(line) + "\n" for line in lines).encode())


def steadily(role: Callable[[str, Log, random.Random], None]) -> Callable[[str, Log, random.Random], None]:
    """Begin anew when the store is away: what was under way then may or may not have happened, and is not logged."""

    def work(url: str, log: Log, rng: random.Random) -> None:
        while True:
            try:
                role(url, log, rng)
            except tampu.Unavailable:
                log.write(("away",))

    return work


def publish(url: str, log: Log, rng: random.Random) -> None:
    """Publishes one or many, plain or in groups, at once or later; logs the ids when the call has returned."""
    with tampu.open(url) as store:
        while True:
            count = rng.choice((1, 1, 5, 20))
            news = [
                tampu.NewMessage(
                    {"n": n, "filling": "x" * 100},
                    delay=rng.choice((None, None, 0.05)),
                    group=f"g{rng.randrange(8)}",
                    max_attempts=rng.choice((2, 100)),
                )
                for n in range(count)
            ]
            made = store.publish_many(rng.choice(QUEUES), news)
            log.write(("published", [m.id for m in made]))


def work(url: str, log: Log, rng: random.Random) -> None:
    """Claims and settles in every way; some leases it lets run out. Logs what it has and what was acknowledged."""
    with tampu.open(url) as store:
        while True:
            leases = store.claim(QUEUES, limit=rng.randint(1, 12), lease=LEASE_SECONDS, wait=0.2)
            log.write(*(("claimed", lease.id, lease.attempt, lease.receipt, lease.until_us) for lease in leases))
            items: list[Any] = []
            for lease in leases:
                verb = rng.choices(("ack", "nack", "release", "forget"), (20, 3, 2, 1))[0]
                if verb == "ack":
                    items.append(tampu.Ack(lease))
                elif verb == "nack":
                    items.append(tampu.Nack(lease, error="boom", delay=rng.choice((0, 0.02))))
                elif verb == "release":
                    items.append(tampu.Release(lease))
            if items:
                outcomes = store.settle(items)
                log.write(
                    *(
                        ("settled", type(item).__name__.lower(), item.lease.id, item.lease.receipt, outcome.ok)
                        for item, outcome in zip(items, outcomes, strict=True)
                    )
                )


def keep(url: str, _log: Log, _rng: random.Random) -> None:
    """Does nothing but keep promises over time."""
    with tampu.open(url):
        while True:
            signal.pause()


class Count:
    """A handler with an effect of each kind: a message for each that was published to ``in``, and their number.

    Its payload names a message to cancel and one to free.
    """

    name = "count"

    def handle(self, transitions: Sequence[Transition], effects: Effects) -> None:
        moves = [moved for moved in transitions if moved.queue == "in" and moved.verb == "publish"]
        for moved in moves:
            effects.publish(moved, "out", moved.id)
            message = effects.message(moved)
            assert message is not None
            effects.cancel(moved, message.payload["cancel"])
            effects.free(moved, message.payload["free"])
        if moves:
            kept = effects.document("count", "default", "in")
            before, version = (int(kept.value), kept.version) if kept is not None else (0, 0)
            effects.put_document("count", "default", "in", before + len(moves), version)


def follow(url: str, log: Log, rng: random.Random) -> None:
    """As `keep`, with a handler that follows the journal."""
    with followers.registered(Count()):
        keep(url, log, rng)


def work_within_limits(url: str, log: Log, rng: random.Random) -> None:
    """Four workers that claim as much as they can get, hold it for a moment, and settle most of it."""
    with tampu.open(url) as store, ThreadPoolExecutor(4) as pool:
        for ended in [pool.submit(_one_within_limits, store, log, random.Random(rng.random())) for _ in range(4)]:
            ended.result()


def _one_within_limits(store: tampu.Store, log: Log, rng: random.Random) -> None:
    while True:
        leases = store.claim(["limited", "paced"], limit=9, lease=LEASE_SECONDS, wait=0.2)
        threading.Event().wait(rng.uniform(0, 0.03))  # at work; a kill may come
        items: dict[str, Callable[[tampu.Lease], Any]] = {
            "ack": tampu.Ack,
            "nack": lambda lease: tampu.Nack(lease, delay=rng.choice((0, 0.02))),
            "release": tampu.Release,
        }
        drawn = [(rng.choices(("ack", "nack", "release", "forget"), (20, 4, 2, 1))[0], lease) for lease in leases]
        settled = [items[verb](lease) for verb, lease in drawn if verb != "forget"]
        if settled:
            store.settle(settled)
        log.write(("settled", len(settled)))


def relay(url: str, log: Log, rng: random.Random) -> None:
    """Hands on what it claims in units: the ack, and what comes of the message in two other queues."""
    with tampu.open(url) as store:
        while True:
            for lease in store.claim("in", limit=rng.randint(1, 4), lease=LEASE_SECONDS, wait=0.2):
                try:
                    with store.atomic() as unit:
                        unit.ack(lease)
                        unit.publish("out", lease.payload)
                        unit.publish_many("notes", [lease.payload, lease.payload])
                except tampu.LeaseLost:
                    log.write(("lost", lease.payload))
                else:
                    log.write(("relayed", lease.payload))


def weave(url: str, log: Log, rng: random.Random) -> None:
    """Works on the members of flows, and follows them when it leads; some leases run out."""
    with tampu.open(url) as store:
        while True:
            leases = store.claim(["parts", "joins"], limit=rng.randint(1, 40), lease=LEASE_SECONDS, wait=0.2)
            done = [lease for lease in leases if rng.random() > 0.02]
            log.write(
                *(("claimed", lease.queue, lease.id, lease.payload) for lease in leases if lease.queue == "joins")
            )
            store.settle([tampu.Ack(lease, result_of(lease.payload)) for lease in done])


def result_of(payload: Any) -> int:
    """What a member of a flow returns: its number, or the sum of the results that it got."""
    return sum(payload) if isinstance(payload, list) else int(payload)


def sleep_on_it(url: str, log: Log, _: random.Random) -> None:
    """Claims, is stopped, and comes back when its lease has run out."""
    with tampu.open(url, maintenance=False) as store:
        (lease,) = store.claim("work", lease=LEASE_SECONDS, worker="sleeper")
        os.kill(os.getpid(), signal.SIGSTOP)
        for verb in (store.ack, store.nack, store.reject, store.release, store.extend):
            try:
                verb(lease)
                log.write(("taken", verb.__name__))
            except tampu.LeaseLost:
                log.write(("lost", verb.__name__))


ROLES: dict[str, Callable[[str, Log, random.Random], None]] = {
    "weave": steadily(weave),
    "keep": keep,
    "follow": follow,
    "publish": steadily(publish),
    "work": steadily(work),
    "work_within_limits": steadily(work_within_limits),
    "relay": steadily(relay),
    "sleep_on_it": sleep_on_it,
}

if __name__ == "__main__":
    serve()
