"""The scripts: each says its contract; a server that forgot them, or has no memory left, costs no message."""

import ast
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.engines.port import Trim
from tampu.engines.redis.checks import OLDEST
from tampu.engines.redis.connection import scripts
from tampu.model.errors import StorageFull
from tests.servers import redis
from tests.servers.redis import Server

OWN = "2f1e9c1e-7d8c-4c55-9a52-4f1a6a1b2c3d"
NAMES = sorted(scripts.files())


@pytest.mark.parametrize("name", NAMES)
def test_every_script_says_its_contract(name: str) -> None:
    text = scripts.files()[name].read_text()
    head = "\n".join(line for line in text.splitlines() if line.startswith("--"))
    assert head.startswith(f"-- {name}: ")
    for part in (r"^-- needs: ", r"^-- KEYS  1: ", r"^-- ARGV  1: now", r"^-- Returns "):
        assert re.search(part, head, re.MULTILINE), part


def test_every_script_is_used() -> None:
    source = Path(tampu.__file__).parent
    nodes = (node for file in source.rglob("*.py") for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    assert not set(NAMES) - {node.value for node in nodes if isinstance(node, ast.Constant)}


def test_every_part_in_common_is_needed() -> None:
    needed = {
        part for file in scripts.files().values() for part in re.findall(r"^-- needs: (.+)$", file.read_text(), re.M)
    }
    common = {file.name for file in (resources.files("tampu.engines.redis") / "lua" / "common").iterdir()}
    assert common == {f"{part}.lua" for parts in needed for part in parts.split()}


@pytest.mark.parametrize("name", NAMES)
def test_every_script_compiles_on_both_servers(name: str) -> None:
    for databases in (redis.redis, redis.valkey):
        with databases.server.client() as client:
            assert client.script_load(scripts.source(name)) == scripts.digest(name)


def test_no_script_needs_a_command_newer_than_the_oldest_server() -> None:
    names = sorted(
        {name for text in map(scripts.source, NAMES) for name in re.findall(r"\b(?:call|many)\('([A-Z]+)'", text)}
    )
    assert "HMGET" in names
    with redis.valkey.server.client() as client:  # Redis 6.2 could not tell
        docs: Any = client.execute_command("COMMAND DOCS", *names)
    assert {name.decode().upper() for name in docs} == set(names)
    for name, facts in docs.items():
        since = facts[b"since"].decode()
        assert tuple(map(int, since.split(".")))[:2] <= OLDEST, f"{name.decode()} came with {since}"


def test_a_server_that_forgot_the_scripts_gets_them_again(start: Callable[..., Server]) -> None:
    server = start()
    with tampu.open(server.url(), maintenance=False) as store:
        store.publish("jobs", 1)
        for _ in range(3):
            server.client().script_flush()
            store.publish("jobs", 2, key="k")
            server.client().script_flush()
            (lease,) = store.claim("jobs")
            server.client().script_flush()
            store.nack(lease, delay=0)
        assert store.stats("jobs").ready == 2


def _memory(client: Any, most: int | str) -> None:
    client.config_set("maxmemory", most)


def test_no_memory_left_refuses_whole_calls_and_loses_nothing(start: Callable[..., Server]) -> None:
    """A script that began would leave half of its work: it must be refused before it takes anything away."""
    server = start()
    client = server.client()
    with tampu.open(server.url(), maintenance=False) as store:
        store.queues.put("jobs", retention=0.001)
        store.publish_many("jobs", [tampu.NewMessage(n, key=str(n), ttl=3600) for n in range(20)])
        store.publish_many("jobs", [b"x" * 1000] * 20)
        done, waiting, *held = store.claim("jobs", limit=5)
        store.ack(done)
        before = store.messages("jobs", limit=1000).messages
        _memory(client, 1)
        for call in (
            lambda: store.publish("jobs", 1), lambda: store.claim("jobs", limit=3),
            lambda: store.nack(waiting, delay=0), lambda: store.purge("jobs", state="ready"),
            lambda: store.publish("jobs", 1, id=OWN),
        ):  # fmt: skip
            with pytest.raises(tampu.TampuError) as refused:
                call()
            assert refused.value.code == "storage_full", refused.value
        (outcome,) = store.settle([tampu.Ack(held[0])])
        assert isinstance(outcome.error, StorageFull)
        (outcome,) = store.cancel(before[0].id)
        assert isinstance(outcome.error, StorageFull)
        assert store.messages("jobs", limit=1000).messages == before, "nothing moved"
        assert [f for f in store.check() if f[1] == "bad"] == []
        _memory(client, 0)
        assert len(store.claim("jobs", limit=100)) == 35
        store.ack(held[0])
        assert [f for f in store.check() if f[1] == "bad"] == []


def test_retention_makes_room_also_when_there_is_none(start: Callable[..., Server]) -> None:
    server = start()
    with tampu.open(server.url(), maintenance=False) as store:
        store.publish_many("jobs", [1, 2, 3])
        store.settle([tampu.Ack(lease) for lease in store.claim("jobs", limit=3)])
        _memory(server.client(), 1)
        trim = Trim({}, 0, 0, 100)
        assert access.core(store).coalescer.submit(trim) > 0
        assert store.stats("jobs").done == 0
