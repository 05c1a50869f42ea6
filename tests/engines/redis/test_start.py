"""What is looked at when a server is opened: what may lose work is refused, what is weaker is named."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import tampu
from tampu.engines.redis import checks
from tampu.engines.redis.connection.node import Patience
from tampu.model.extras import install
from tests.cli.run_command import Command
from tests.server.web import Web
from tests.servers.http import Stall
from tests.servers.ports import free_port
from tests.servers.redis import DURABLE, Server, until

Start = Callable[..., Server]


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_an_evicting_policy_is_refused_with_the_cure(start: Start, policy: str) -> None:
    server = start({"maxmemory-policy": policy})
    with pytest.raises(tampu.InvalidConfig, match=policy) as refused:
        tampu.open(server.url())
    assert "noeviction" in (refused.value.hint or "")
    assert server.client().dbsize() == 0, "nothing is left on a server that is refused"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"appendonly": "no"}, "none"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "everysec"),
        ({"appendonly": "yes", "appendfsync": "no"}, "none"),
        (DURABLE, "full"),
    ],
)
def test_the_durability_is_named(start: Start, settings: dict[str, str], name: str) -> None:
    with tampu.open(start(settings).url(), maintenance=False) as store:
        assert store.durability == name
        (found,) = [finding for finding in store.check() if finding[0] == "durability"]
        assert found[1] == ("ok" if name == "full" else "warn")
        assert found[2].startswith(name)


def test_doctor_names_the_durability_and_refuses_an_evicting_server(start: Start, tmp_path: Path) -> None:
    command = Command(tmp_path / "none.db")
    server = start({"appendonly": "yes", "appendfsync": "everysec"})
    with tampu.open(server.url(), maintenance=False) as store:
        store.publish("jobs", 1)
    ran = command("doctor", "--url", server.url())
    assert ran.code == 0
    assert "everysec" in ran.out
    server.client().config_set("maxmemory-policy", "allkeys-lru")
    refused = command("doctor", "--url", server.url())
    assert refused.code != 0
    assert "allkeys-lru" in refused.out + refused.err


def test_a_node_over_it_names_the_durability(start: Start, tmp_path: Path) -> None:
    url = start({"appendonly": "yes", "appendfsync": "everysec"}).url()
    node = Stall(url=url, key_file=tmp_path / "key")
    try:
        until(lambda: Web(node.url).get("/ready").status == 200, "the node is ready")
        assert Web(node.url).get("/ready").json["durability"] == "everysec"
        assert 'tampu_durability{mode="everysec"} 1.0' in Web(node.url, node.token).get("/metrics").raw.decode()
    finally:
        node.stop()


def test_less_durability_than_asked_for_is_refused(start: Start) -> None:
    server = start({"appendonly": "yes", "appendfsync": "everysec"})
    tampu.open(server.url(durability="everysec"), maintenance=False).close()
    for url, wanted in ((server.url(durability="full"), None), (server.url(), "full")):
        with pytest.raises(tampu.InvalidConfig) as refused:
            tampu.open(url, durability=wanted)
        assert "appendfsync always" in (refused.value.hint or "")
    with pytest.raises(tampu.InvalidConfig):
        tampu.open(server.url(), durability="process")


def test_a_server_that_is_not_there_is_said_so_in_bounded_time() -> None:
    began = time.monotonic()
    with pytest.raises(tampu.Unavailable, match="cannot reach"):
        tampu.open(f"redis://127.0.0.1:{free_port()}/0")
    assert time.monotonic() - began < 60


def test_wrong_credentials_are_said_so_at_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start({"requirepass": "secret"})
    monkeypatch.setattr(Patience, "wait", lambda _: pytest.fail("nothing gets better by waiting"))
    wrong = server.url().replace("//", "//:wrong@")
    for url in (server.url(), wrong, wrong.replace("redis://", "redis+cluster://")):
        with pytest.raises(tampu.Unavailable, match="refuses access"):
            tampu.open(url)
    tampu.open(server.url().replace("//", "//:secret@"), maintenance=False).close()


def test_a_missing_driver_is_said_with_what_to_install() -> None:
    code = (
        "import sys; sys.modules['redis'] = None\nimport tampu\n"
        "try: tampu.open('redis://localhost')\nexcept tampu.InvalidConfig as error: print(error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == install("redis")


def test_no_driver_is_imported_by_who_does_not_ask_for_it() -> None:
    code = "import sys, tampu\ntampu.open('memory://').close()\nprint('redis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False"


class _Loading:
    """A server that has just been started, as it tells of itself."""

    url = "redis://somewhere"

    def __init__(self, times: int) -> None:
        self.times = times

    def send_to(self, _node: object, command: str, *_more: object) -> Any:
        if command == "CONFIG":
            return [b"appendfsync", b"always"]
        self.times -= 1
        return b"redis_version:7.0.15\r\nloading:1\r\naof_enabled:0" if self.times >= 0 else (
            b"redis_version:7.0.15\r\nloading:0\r\naof_enabled:1"
        )  # fmt: skip


def test_a_server_that_loads_its_data_is_waited_for_before_it_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile it says that it writes no log: a cluster of which one server was restarted would be refused."""
    wire: Any = _Loading(2)
    assert checks.read_server(wire, None).durability == "full"  # type: ignore[arg-type]  # it asks nobody
    monkeypatch.setattr(checks, "Patience", lambda: Patience(0.01))
    with pytest.raises(tampu.Unavailable, match="still loading"):
        checks.read_server(cast("Any", _Loading(10_000)), None)  # type: ignore[arg-type]  # as above


def test_replicas_and_memory_are_in_the_findings(start: Start) -> None:
    server = start({"maxmemory": "100mb"})
    replica = start({"replicaof": f"127.0.0.1 {server.port}"})
    with tampu.open(server.url(), maintenance=False) as store:
        _until_replica(server.client())
        findings: dict[str, Any] = {what: (grade, text) for what, grade, text in store.check()}
    assert findings["memory"][0] == "ok"
    assert "of 105" in findings["memory"][1]
    assert findings["replicas"][0] == "warn"
    with (
        pytest.raises(tampu.Unavailable, match="takes no writes"),
        tampu.open(replica.url(), maintenance=False) as store,
    ):
        store.publish("jobs", 1)


def _until_replica(client: Any) -> None:
    until(lambda: client.info("replication")["connected_slaves"] == 1, "the replica")
