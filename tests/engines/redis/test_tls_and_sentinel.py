"""Encrypted connections, and a master that Sentinels name and replace."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis as driver

import tampu
from tampu.engines.redis.connection.node import Patience
from tests.conformance.harness import payloads, waits
from tests.servers.certificates import self_signed
from tests.servers.redis import FAST, Server, redis_binary, until


class TlsServer(Server):
    """Takes only encrypted connections, with a certificate of its own making."""

    def __init__(self) -> None:
        super().__init__(redis_binary())
        self.certificate, key = self_signed(self.folder)
        self.settings = {
            **FAST, "tls-port": str(self.port), "tls-auth-clients": "no", "tls-cert-file": str(self.certificate),
            "tls-key-file": str(key), "tls-ca-cert-file": str(self.certificate), "port": "0",
        }  # fmt: skip

    def client(self) -> Any:
        return driver.Redis(port=self.port, host="127.0.0.1", ssl=True, ssl_ca_certs=str(self.certificate))


@pytest.fixture
def tls() -> Iterator[TlsServer]:
    made = TlsServer()
    yield made.start()
    made.remove()


def test_an_encrypted_connection_works_and_hears_wake_ups(tls: TlsServer) -> None:
    url = tls.url(ssl_ca_certs=str(tls.certificate)).replace("redis://", "rediss://")
    with tampu.open(url) as store, tampu.open(url, maintenance=False) as other, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.claim, "jobs", wait=240)
        until(lambda: waits(store), "the claim to wait")
        until(lambda: tls.client().pubsub_numsub("{tampu}:bell")[0][1] == 2, "both to listen")
        other.publish("jobs", 1)
        assert payloads(waiting.result(60)) == [1]
        assert [finding for finding in store.check() if finding[1] == "bad"] == []


@pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster"])
def test_a_certificate_that_nobody_vouches_for_is_refused_at_once_with_the_cure(
    tls: TlsServer, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Patience, "wait", lambda _: pytest.fail("nothing gets better by waiting"))
    with pytest.raises(tampu.Unavailable, match=r"certificate .* is not trusted") as refused:
        tampu.open(tls.url().replace("redis://", f"{scheme}://"))
    assert "ssl_ca_certs" in (refused.value.hint or "")


def test_a_certificate_is_not_looked_at_by_who_says_so(tls: TlsServer) -> None:
    unchecked = tls.url(ssl_cert_reqs="none").replace("redis://", "rediss://")
    tampu.open(unchecked, maintenance=False).close()


class Sentinel(Server):
    def __init__(self, master: Server) -> None:
        super().__init__(redis_binary())
        self._config = self.folder / "sentinel.conf"
        self._config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n"
            f"sentinel monitor mymaster 127.0.0.1 {master.port} 1\n"
            "sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 3000\n"
        )

    def words(self) -> list[str]:
        return [str(self._config), "--sentinel"]


@pytest.fixture
def harness(start: Callable[..., Server]) -> Iterator[tuple[Server, Server, Sentinel]]:
    master = start()
    replica = start({"replicaof": f"127.0.0.1 {master.port}"})
    sentinel = Sentinel(master)
    try:
        sentinel.start()
        until(lambda: master.client().info("replication")["connected_slaves"] == 1, "the replica")
        until(lambda: len(_replicas(sentinel)) == 1, "the Sentinel to know the replica")
        yield master, replica, sentinel
    finally:
        sentinel.remove()


def _replicas(sentinel: Server) -> list[Any]:
    found: list[Any] = sentinel.client().sentinel_slaves("mymaster")
    return [one for one in found if one["master-link-status"] == "ok"]


def test_the_master_is_found_and_followed_when_it_changes(
    harness: tuple[Server, Server, Sentinel],
) -> None:
    master, replica, sentinel = harness
    with tampu.open(f"redis+sentinel://127.0.0.1:{sentinel.port}/mymaster/0", maintenance=False) as store:
        store.publish("jobs", "before")
        until(lambda: bool(replica.client().exists("{tampu:default:jobs}:ready")), "the message to be copied")
        sentinel.client().execute_command("SENTINEL FAILOVER", "mymaster")
        until(lambda: replica.client().info("replication")["role"] == "master", "the failover")
        until(lambda: master.client().info("replication")["role"] == "slave", "the old master to step down")
        until(lambda: _publishes(store), "a publish to reach the new master")
        got = payloads(store.claim("jobs", limit=10))
        assert got[0] == "before"
        assert "after" in got
        assert replica.client().exists("{tampu:default:jobs}:leased")


def _publishes(store: tampu.Store) -> bool:
    try:
        store.publish("jobs", "after")
    except tampu.Unavailable:
        return False
    return True


def test_a_waiting_worker_follows_to_the_master_that_replaces_a_killed_one(
    harness: tuple[Server, Server, Sentinel],
) -> None:
    master, replica, sentinel = harness
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/mymaster/0"
    with tampu.open(url) as worker, tampu.open(url, maintenance=False) as store, ThreadPoolExecutor(1) as pool:
        store.publish("others", "before")
        until(lambda: bool(replica.client().exists("{tampu:default:others}:ready")), "the message to be copied")
        waiting = pool.submit(_claims, worker)
        until(lambda: waits(worker), "the claim to wait")
        master.kill()
        until(lambda: replica.client().info("replication")["role"] == "master", "the Sentinel to replace it")
        until(lambda: _publishes(store), "a publish to reach the new master")
        assert payloads(waiting.result(60)) == ["after"]
        assert payloads(store.claim("others")) == ["before"]


def _claims(store: tampu.Store) -> list[tampu.Lease]:
    """One, also when nobody was there for longer than a call has patience."""
    give_up = time.monotonic() + 60
    while True:
        try:
            return store.claim("jobs", wait=240)
        except tampu.Unavailable:
            assert time.monotonic() < give_up


def test_a_master_that_no_sentinel_names_is_said_so(
    start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Patience, "wait", lambda _: False)
    sentinel = Sentinel(start())
    try:
        sentinel.start()
        with pytest.raises(tampu.Unavailable, match="no Sentinel knows the master"):
            tampu.open(f"redis+sentinel://127.0.0.1:{sentinel.port}/another/0")
    finally:
        sentinel.remove()
