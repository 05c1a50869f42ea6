"""One door: what publishes anywhere builds its call in one module, with every setting of the queue."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

import tampu
from tampu.broker import publish, validate
from tampu.broker.settings import resolve
from tampu.engines import port
from tampu.model.config import BUILT_IN, inherit
from tampu.model.message import NewMessage

SOURCE = Path(tampu.__file__).parent
LIMITED = resolve(inherit(tampu.QueueConfig(max_depth=7, group_concurrency=3, group_rate=2.0, group_burst=5), BUILT_IN))


def builders(name: str) -> set[str]:
    """The modules that call a struct of the port, by whatever name they have imported it."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        known = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "tampu.engines.port"
            for alias in node.names
            if alias.name == name
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            by_name = isinstance(node.func, ast.Name) and node.func.id in known
            of_port = (
                isinstance(node.func, ast.Attribute)
                and node.func.attr == name
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "port"
            )
            if by_name or of_port:
                found.add(str(path.relative_to(SOURCE)))
    return found


@pytest.mark.parametrize("name", ["Publish", "Load"])
def test_one_module_builds_the_calls_that_store_messages(name: str) -> None:
    assert builders(name) == {"broker/publish.py"}


def test_a_publish_carries_the_limits_of_its_queue() -> None:
    call = publish.prepare("default", "jobs", [NewMessage(1, group="a")], lambda _queue: LIMITED)
    assert isinstance(call, port.Publish)
    assert (call.max_depth, call.slots, call.group_rate) == (7, LIMITED.slots, LIMITED.group_rate)
    assert LIMITED.group_rate is not None


SIMPLE = resolve(BUILT_IN)


@pytest.mark.parametrize(
    ("fields", "simple"),
    [
        ({}, True),
        ({"type": "email.send"}, True),
        ({"labels": {"a": "b"}, "headers": {"c": "d"}, "source": "here"}, True),
        ({"group": "a"}, False),
        ({"priority": 1}, False),
        ({"deadline": datetime(2030, 1, 1, tzinfo=UTC)}, False),
        ({"delay": 0}, True),
        ({"delay": 1}, False),
        ({"ttl": 1}, False),
        ({"key": "k"}, False),
        ({"idempotency_key": "k"}, False),
        ({"correlation_id": "c"}, False),
        ({"hold": "review"}, False),
        ({"id": "0190a8b4-7c1e-7000-8000-000000000001"}, False),
    ],
)
def test_a_batch_is_simple_if_each_message_can_be_stored_as_it_comes(fields: dict[str, object], simple: bool) -> None:
    new = msgspec.structs.replace(NewMessage(1), **fields)
    assert validate.items("jobs", SIMPLE, [new])[1] is simple
    assert validate.items("jobs", SIMPLE, [1, new])[1] is simple


@pytest.mark.parametrize(
    ("config", "simple"),
    [
        (tampu.QueueConfig(), True),
        (tampu.QueueConfig(ordering="priority"), True),
        (tampu.QueueConfig(ordering="priority", ageing=1), False),
        (tampu.QueueConfig(ordering="deadline"), False),
        (tampu.QueueConfig(ordering="fair"), False),
        (tampu.QueueConfig(ttl=1), False),
        (tampu.QueueConfig(group_by="type"), False),
    ],
)
def test_payloads_are_simple_where_the_queue_is(config: tampu.QueueConfig, simple: bool) -> None:
    settings = resolve(inherit(config, BUILT_IN))
    assert validate.items("jobs", settings, [1, b"2"])[1] is simple
    assert validate.items("jobs", settings, [NewMessage(1), NewMessage(2)])[1] is simple
