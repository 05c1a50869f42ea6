"""A server that speaks the protocol of SQS, and real clients of it. The tests of a file share both."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tampu.server.auth import keys
from tests.server.web import Web
from tests.servers.http import Server

REGION = "eu-west-1"
_names = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Signatures cover the path, so it is a whole server with a port of its own."""
    made = Server(url="memory://", key_file=str(tmp_path_factory.mktemp("sqs") / "admin.key"), sqs=True)
    yield made
    made.stop()


@pytest.fixture
def web(server: Server) -> Web:
    """As the admin."""
    return Web(server.url, server.token)


def credentials(token: str) -> tuple[str, str]:
    """(access key id, secret access key) of a key."""
    parts = keys.split(token)
    assert parts is not None
    return f"tampu_{parts[0]}", keys.aws_secret(parts[1])


def client(url: str, token: str) -> Any:
    id, secret = credentials(token)
    return boto3.client(
        "sqs", endpoint_url=f"{url}/sqs", region_name=REGION, aws_access_key_id=id, aws_secret_access_key=secret,
        config=Config(retries={"max_attempts": 1}, read_timeout=90),
    )  # fmt: skip


@pytest.fixture(scope="module")
def sqs(server: Server) -> Iterator[Any]:
    """A client of boto3, as the admin."""
    made = client(server.url, server.token)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    """Of a queue that no other test has."""
    return f"queue-{next(_names)}"


@pytest.fixture
def as_key(server: Server, web: Web) -> Iterator[Callable[..., Any]]:
    """Clients with a new key that has these grants."""
    made = []

    def with_grants(*grants: str) -> Any:
        made.append(client(server.url, web.key(*grants)))
        return made[-1]

    yield with_grants
    for each in made:
        each.close()


@pytest.fixture
def key_file(tmp_path: Path, server: Server) -> Path:
    path = tmp_path / "a.key"
    path.write_text(server.token)
    return path
