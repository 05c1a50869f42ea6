"""A node with an empty store in memory, and somebody who may do everything on it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.web import Web
from tests.servers.http import Stall

Start = Callable[..., Stall]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts nodes; they end with the test."""
    started: list[Stall] = []

    def node(**settings: Any) -> Stall:
        key_file = tmp_path / f"{len(started)}.key"
        made = Stall(**{"url": "memory://", "key_file": key_file, **settings})
        started.append(made)
        return made

    yield node
    for made in started:
        made.stop()


@pytest.fixture
def stall(start: Start) -> Stall:
    return start()


@pytest.fixture
def web(stall: Stall) -> Web:
    """As the admin."""
    return Web(stall.url, stall.token)
