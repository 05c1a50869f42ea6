"""A server of its own for each test that breaks one; a store on the shared server for the others."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.servers import redis
from tests.servers.redis import FAST, Server


@pytest.fixture
def url() -> str:
    return redis.redis.url()


@pytest.fixture
def start() -> Iterator[Callable[[Mapping[str, str]], Server]]:
    """Starts servers with settings of one's own."""
    made: list[Server] = []

    def one(settings: Mapping[str, str] | None = None) -> Server:
        made.append(Server(redis.redis_binary(), {**FAST, **(settings or {})}))
        return made[-1].start()

    yield one
    for server in made:
        server.remove()
