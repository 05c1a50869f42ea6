"""Several nodes over one PostgreSQL or Redis: one is killed under load, nothing is lost, clients carry on."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tampu
from tests.conformance.harness import until
from tests.server.web import Web
from tests.servers import postgres, redis
from tests.servers.ports import free_port
from tests.worker.nursery import Process, nursery

SERVE = ["--json", "serve", "--log-level", "error"]
PATIENCE = 240.0


class Nodes:
    def __init__(self, place: Path, url: str) -> None:
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TAMPU_")},
            "TAMPU_URL": url,
            "TAMPU_KEY_FILE": str(place / "admin.key"),
        }
        self._place = place
        self.processes: list[Process] = []

    def start(self, port: int = 0) -> str:
        """By forking: clients retry for half a minute, and a busy machine may import for longer than that."""
        answer = self._place / f"answer-{len(self.processes)}"
        words = [*SERVE, "--port", str(port)]
        process = nursery().start(words, self._env, self._place / "log", answer)
        self.processes.append(process)

        def says_where() -> bool:
            assert process.poll() is None, (self._place / "log").read_text()
            return answer.exists() and answer.read_text().endswith("\n")

        until(says_where, PATIENCE)
        return str(json.loads(answer.read_text())["url"])

    @property
    def token(self) -> str:
        return (self._place / "admin.key").read_text().strip()

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait(60)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(60)


@pytest.fixture(params=[postgres.databases, redis.redis], ids=["postgres", "redis"])
def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    made = Nodes(tmp_path, request.param.url())
    yield made
    made.stop()


def test_a_node_killed_under_load_loses_nothing_and_clients_carry_on(nodes: Nodes) -> None:
    port = free_port()
    mortal, steady = nodes.start(port), nodes.start()
    with tampu.open(steady, token=nodes.token) as store:
        store.queues.put("jobs", max_attempts=1000)  # leases are short, and a busy machine may lose several
    opened: list[str] = []
    published: list[int] = []
    done: set[int] = set()
    stop = threading.Event()

    def publish(url: str, numbers: range) -> None:
        with tampu.open(url, token=nodes.token) as store:
            opened.append(url)
            for n in numbers:
                store.publish("jobs", n)  # a killed node is waited for, and asked again
                published.append(n)

    def work(url: str) -> None:
        with tampu.open(url, token=nodes.token) as store:
            opened.append(url)
            while not stop.is_set():
                for lease in store.claim("jobs", limit=5, lease=2, wait=1):
                    try:
                        store.ack(lease)
                    except tampu.LeaseLost:
                        continue
                    done.add(lease.payload)

    threads = [
        threading.Thread(target=publish, args=(mortal, range(150))),
        threading.Thread(target=publish, args=(steady, range(1000, 1150))),
        threading.Thread(target=work, args=(mortal,)),
        threading.Thread(target=work, args=(steady,)),
    ]
    for thread in threads:
        thread.start()
    until(lambda: len(opened) == 4 and len(done) > 20)  # to open is not waited for as long as a call is
    nodes.kill(0)
    nodes.start(port)
    for thread in threads[:2]:
        thread.join(PATIENCE)
    assert sorted(published) == [*range(150), *range(1000, 1150)]
    until(lambda: done >= set(published), PATIENCE)
    stop.set()
    for thread in threads[2:]:
        thread.join(PATIENCE)
    with tampu.open(steady, token=nodes.token) as store:
        stats = store.stats("jobs")
        assert (stats.done, stats.depth) == (300, 0), "each exactly once: a repeated publish found the first"


def test_a_key_made_on_one_node_holds_on_the_other_and_settings_are_followed(nodes: Nodes) -> None:
    one, two = nodes.start(), nodes.start()
    with tampu.open(one, token=nodes.token) as here, tampu.open(two, token=nodes.token) as there:
        here.publish("jobs", 1)
        here.pause("jobs")
        until(lambda: there.stats("jobs").status == "paused")
        assert there.claim("jobs") == []
        here.resume("jobs")
        assert [lease.payload for lease in there.claim("jobs", wait=60)] == [1]


def test_a_key_revoked_on_one_node_ends_everywhere(nodes: Nodes) -> None:
    """Requests, long polls and streams alike; how soon is the watch's business, ten times a second."""
    urls = [nodes.start(), nodes.start()]
    admins = [Web(url, nodes.token) for url in urls]
    token = admins[0].key("consume,view")
    callers = [Web(url, token) for url in urls]
    assert [caller.get("/v1/queues").status for caller in callers] == [200, 200]
    with ThreadPoolExecutor(2) as pool, tampu.open(urls[1], token=token) as store, store.stream("jobs") as stream:
        polls = [pool.submit(caller.post, "/v1/claim", {"queues": "jobs", "wait": 50}) for caller in callers]
        for admin in admins:
            until(lambda admin=admin: b"tampu_long_polls 0.0" not in admin.get("/metrics").raw)  # type: ignore[misc]  # bound now
        admins[0].request("DELETE", f"/v1/keys/{token.split('_')[1]}")
        assert [poll.result(60).code for poll in polls] == ["unauthorized"] * 2
        until(lambda: [caller.get("/v1/queues").status for caller in callers] == [401, 401], 60)
        with pytest.raises(tampu.Unauthorized):
            stream.next(60)
