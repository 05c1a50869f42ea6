"""What the remote client asks again, and what it does not: a server that breaks off at the worst moment."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import tampu
from tampu.client import failures
from tests.servers import postgres, redis
from tests.servers.http import Stall
from tests.servers.ports import free_port


class Breaker:
    """Stands between client and server; can swallow the answer of a request that was carried out."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "", parts.port or 0)
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}{parts.path}"
        self.swallow = 0
        """So many answers are lost."""
        self.lost: Callable[[], object] = lambda: None
        """What happens when one is."""
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server) as server:
            threading.Thread(target=_pump, args=(client, server), daemon=True).start()
            while answer := server.recv(1 << 20):
                if self.swallow:
                    self.swallow -= 1
                    self.lost()
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone leaves who is in accept() there
        self._listener.close()
        self._accepting.join(60)
        assert not self._accepting.is_alive()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side was broken off
        while data := source.recv(1 << 20):
            target.sendall(data)


@pytest.fixture
def breaker(tmp_path: Path) -> Iterator[tuple[Breaker, str]]:
    stall = Stall(url="memory://", key_file=tmp_path / "k")
    made = Breaker(stall.url)
    yield made, stall.token
    made.close()
    stall.stop()


def test_a_publish_whose_answer_was_lost_is_stored_once(breaker: tuple[Breaker, str]) -> None:
    between, token = breaker
    with tampu.open(between.url, token=token) as store:
        between.swallow = 1
        message = store.publish("jobs", {"n": 1})
        assert not message.duplicate
        between.swallow = 2
        many = store.publish_many("jobs", [1, 2, 3])
        assert [m.payload for m in many] == [1, 2, 3]
        assert [m.id for m in store.messages("jobs")] == [message.id, *(m.id for m in many)]


@pytest.mark.parametrize("of", ["file", "postgres"])
def test_a_batch_whose_answer_was_lost_is_stored_once_also_when_it_was_worked_meanwhile(
    tmp_path: Path, of: str
) -> None:
    """By its name where the store has names, by ids made of the name elsewhere."""
    stall = Stall(url=str(tmp_path / "jobs.db") if of == "file" else postgres.databases.url(), key_file=tmp_path / "k")
    between = Breaker(stall.url)
    try:
        with tampu.open(between.url, token=stall.token) as store, tampu.open(stall.url, token=stall.token) as worker:
            between.lost = lambda: [worker.ack(lease) for lease in worker.claim("jobs", limit=2)]
            between.swallow = 1
            many = store.publish_many("jobs", [1, 2, 3])
            assert (between.swallow, [m.duplicate for m in many]) == (0, [False] * 3)
            assert [m.state.value for m in many] == ["done", "done", "ready"]
            assert [(m.id, m.payload) for m in store.messages("jobs", state="ready")] == [(many[2].id, 3)]
            assert store.stats("jobs").done == 2
    finally:
        between.close()
        stall.stop()


def test_tasks_repeat_as_threads_do(breaker: tuple[Breaker, str]) -> None:
    between, token = breaker

    async def main() -> None:
        async with tampu.open_async(between.url, token=token) as store:
            between.swallow = 1
            await store.publish("jobs", 1)
            (lease,) = await store.claim("jobs")
            between.swallow = 1
            await store.ack(lease)
            assert (await store.stats("jobs")).done == 1

    asyncio.run(main())


def test_a_settle_whose_answer_was_lost_counts_once(breaker: tuple[Breaker, str]) -> None:
    between, token = breaker
    with tampu.open(between.url, token=token) as store:
        store.publish("jobs", 1)
        (lease,) = store.claim("jobs")
        between.swallow = 1
        store.ack(lease, result=7)
        assert store.get(lease.id).result == 7


@pytest.mark.parametrize("verb", ["nack", "reject", "release"])
def test_the_other_settles_whose_answer_was_lost_count_once_too(breaker: tuple[Breaker, str], verb: str) -> None:
    between, token = breaker
    with tampu.open(between.url, token=token) as store:
        store.publish("jobs", 1)
        (lease,) = store.claim("jobs")
        between.swallow = 2
        outcome = getattr(store, verb)(lease)
        assert (between.swallow, outcome.error) == (0, None)
        found = store.get(lease.id)
        assert found.state is outcome.state
        assert len(found.failures) == (0 if verb == "release" else 1)


def test_what_is_not_safe_is_not_repeated_and_says_so(breaker: tuple[Breaker, str]) -> None:
    between, token = breaker
    with tampu.open(between.url, token=token) as store:
        store.publish("jobs", 1, key="k")
        for call in (lambda: store.publish("jobs", 2, key="k"), lambda: store.purge("jobs", state="dead")):
            between.swallow = 1
            with pytest.raises(tampu.Unavailable, match="may or may not have happened"):
                call()
            assert between.swallow == 0
        between.swallow = 1
        assert store.publish("jobs", 3, key="k", idempotency_key="i").duplicate
        assert [m.payload for m in store.messages("jobs")] == [3]


def test_a_missing_server_is_reported_soon_at_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tampu.client.remote._OPENING_SECONDS", 0.1)
    with pytest.raises(tampu.Unavailable, match="cannot reach the server"):
        tampu.open(f"http://127.0.0.1:{free_port()}", token="x")
    assert failures.PATIENCE_SECONDS > 1


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://"},
        {"url": "http://h:99999"},
        {"url": "http://user@h"},
        {"url": "http://h/?x=1"},
        {"url": "http://h", "durability": "process"},
        {"url": "http://h", "adopt": True},
        {"url": "http://h", "token": "größe"},
        {"url": "memory://", "token": "x"},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(tampu.InvalidConfig):
        tampu.open(**options)  # type: ignore[arg-type]  # bad on purpose


def test_a_bad_key_is_reported_at_open(tmp_path: Path) -> None:
    stall = Stall(url="memory://", key_file=tmp_path / "k")
    try:
        with pytest.raises(tampu.Unauthorized):
            tampu.open(stall.url, token="tampu_nonsense")
        with pytest.raises(tampu.Forbidden):
            tampu.open(stall.url)
    finally:
        stall.stop()


@pytest.mark.parametrize("of", ["file", "postgres", "redis", "cluster"])
def test_a_unit_whose_answer_was_lost_takes_effect_once(tmp_path: Path, of: str) -> None:
    """Also when what it published was worked meanwhile, and what it freed has gone on."""
    urls = {"postgres": postgres.databases.url, "redis": redis.redis.url, "cluster": redis.cluster.url}
    url = urls[of]() if of in urls else str(tmp_path / "jobs.db")
    stall = Stall(url=url, key_file=tmp_path / "k")
    between = Breaker(stall.url)
    try:
        with tampu.open(between.url, token=stall.token) as store, tampu.open(stall.url, token=stall.token) as worker:
            held = store.publish("jobs", "held", hold="review")
            store.publish("jobs", "work")
            (lease,) = store.claim("jobs")
            between.lost = lambda: [worker.ack(one) for one in worker.claim(["jobs", "mails"], limit=3)]
            between.swallow = 1
            with store.atomic() as unit:
                acked = unit.ack(lease)
                freed = unit.free(held.id)
                mails = unit.publish_many("mails", [1, 2])
                written = unit.put_document("cursor", "jobs", 7)
            assert between.swallow == 0
            assert [(m.payload, m.duplicate) for m in mails.value] == [(1, False), (2, False)]
            assert (acked.value.state, freed.value[0].state) == ("done", "ready")
            document = store.get_document("cursor", "jobs")
            assert document is not None
            assert document.version == written.value
            assert (store.stats("mails").done, store.stats("jobs").done) == (2, 2)
    finally:
        between.close()
        stall.stop()
