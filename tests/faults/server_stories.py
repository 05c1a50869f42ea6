"""What is done to a crew that works through a database server, whichever it is; the checker looks at the end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import tampu
from tests.conformance.harness import until
from tests.faults.crew import Nursery
from tests.faults.evidence import Logs
from tests.faults.verdict import examine, works_on

ROLES = ["publish", "work", "work", "work"]


class Server(Protocol):
    def kill(self) -> None: ...

    def start(self) -> object: ...


def furnish(url: str) -> str:
    """The queues that the crew works on."""
    with tampu.open(url, maintenance=False) as store:
        store.queues.put("work", group_order=False)
        store.queues.put("lanes", group_order=True)
    return url


def _start_all(nursery: Nursery, rng: random.Random) -> dict[int, str]:
    return {nursery.start(role, rng.randrange(10**9)): role for role in ROLES}


def processes_are_killed(url: str, logs: Path, seed: int, long: int) -> None:
    rng = random.Random(seed)
    kills = 0
    with Nursery(url, logs) as nursery:
        crew = _start_all(nursery, rng)
        for _ in range(12 * long):
            time.sleep(rng.uniform(0.1, 0.6))  # noqa: TID251 - a kill at any moment is what is tested
            for pid in rng.sample(sorted(crew), rng.choice((1, 1, 2, len(ROLES)))):
                nursery.kill(pid)
                role = crew.pop(pid)
                crew[nursery.start(role, rng.randrange(10**9))] = role
                kills += 1
        works_on(logs)
    examine(url, Logs.read(logs), kills)


def the_server_is_killed(
    server: Server,
    url: str,
    logs: Path,
    seed: int,
    long: int,
    between: Callable[[random.Random], None] = lambda _: None,
) -> None:
    """``between`` two kills something else may happen."""
    rng = random.Random(seed)
    with Nursery(url, logs) as nursery:
        _start_all(nursery, rng)
        for _ in range(4 * long):
            time.sleep(rng.uniform(0.3, 1.5))  # noqa: TID251 - a kill at any moment is what is tested
            server.kill()
            server.start()
            between(rng)
        works_on(logs)
    examine(url, Logs.read(logs), 4 * long)


def sessions_are_ended(
    sessions: Callable[[], list[int]], end: Callable[[int], None], url: str, logs: Path, seed: int, long: int
) -> None:
    rng = random.Random(seed)
    ended = 0
    with Nursery(url, logs) as nursery:
        _start_all(nursery, rng)
        for _ in range(20 * long):
            time.sleep(rng.uniform(0.05, 0.3))  # noqa: TID251 - a session may be ended at any moment
            living = sessions()
            for session in rng.sample(living, min(len(living), rng.choice((1, 3, len(living))))):
                end(session)
                ended += 1
        works_on(logs)
    until(lambda: not sessions(), 60)  # what the dead sent last may still be under way
    examine(url, Logs.read(logs), ended)
