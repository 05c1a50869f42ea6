"""Encrypted connections, and a master that Sentinels name and replace."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis as driver

import tampu
from tests.conformance.house import payloads
from tests.servers.redis import FAST, Server, redis_binary, until


class TlsServer(Server):
    """Takes only encrypted connections, with a certificate of its own making."""

    def __init__(self) -> None:
        super().__init__(redis_binary())
        if shutil.which("openssl") is None:
            raise RuntimeError("no openssl on this machine: install the Debian package openssl")
        self.certificate = self.folder / "cert.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(self.folder / "key.pem"),
             "-out", str(self.certificate)],
            check=True, capture_output=True,
        )  # fmt: skip
        self.settings = {
            **FAST, "tls-port": str(self.port), "tls-auth-clients": "no", "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.folder / "key.pem"), "tls-ca-cert-file": str(self.certificate), "port": "0",
        }  # fmt: skip

    def client(self) -> Any:
        return driver.Redis(port=self.port, host="127.0.0.1", ssl=True, ssl_ca_certs=str(self.certificate))


@pytest.fixture
def tls() -> Iterator[TlsServer]:
    made = TlsServer()
    yield made.start()
    made.remove()


def test_an_encrypted_connection_works_and_hears_the_bell(tls: TlsServer) -> None:
    url = tls.url(ssl_ca_certs=str(tls.certificate)).replace("redis://", "rediss://")
    with tampu.open(url) as q:
        q.publish("jobs", 1)
        assert payloads(q.claim("jobs")) == [1]
        assert [finding for finding in q.check() if finding[1] == "bad"] == []


def test_a_certificate_that_nobody_vouches_for_is_refused(tls: TlsServer) -> None:
    with pytest.raises(tampu.Unavailable, match=r"(?i)certificate"):
        tampu.open(tls.url().replace("redis://", "rediss://"))
    unchecked = tls.url(ssl_cert_reqs="none").replace("redis://", "rediss://")
    tampu.open(unchecked, keepers=False).close()


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
def house(start: Callable[..., Server]) -> Iterator[tuple[Server, Server, Sentinel]]:
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
    house: tuple[Server, Server, Sentinel],
) -> None:
    master, replica, sentinel = house
    with tampu.open(f"redis+sentinel://127.0.0.1:{sentinel.port}/mymaster/0", keepers=False) as q:
        q.publish("jobs", "before")
        until(lambda: bool(replica.client().exists("{tampu:default:jobs}:m")), "the message to be copied")
        sentinel.client().execute_command("SENTINEL FAILOVER", "mymaster")
        until(lambda: replica.client().info("replication")["role"] == "master", "the failover")
        until(lambda: master.client().info("replication")["role"] == "slave", "the old master to step down")
        until(lambda: _publishes(q), "a publish to reach the new master")
        got = payloads(q.claim("jobs", limit=10))
        assert got[0] == "before"
        assert "after" in got
        assert replica.client().exists("{tampu:default:jobs}:leased")


def _publishes(q: tampu.Queue) -> bool:
    try:
        q.publish("jobs", "after")
    except tampu.Unavailable:
        return False
    return True


def test_a_master_that_no_sentinel_names_is_said_so(house: tuple[Server, Server, Sentinel]) -> None:
    with pytest.raises(tampu.Unavailable, match="no Sentinel names the master"):
        tampu.open(f"redis+sentinel://127.0.0.1:{house[2].port}/another/0")
