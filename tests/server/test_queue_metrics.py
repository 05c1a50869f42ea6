"""What a node follows of the store: changes of keys and settings, none of which may be missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.server.auth import keys
from tampu.server.auth.grants import FULL
from tampu.server.server_state import ServerState, open_server_state
from tests.servers.http import settings_of


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServerState]:
    """Nobody watches but the test."""
    made = open_server_state(settings_of({"url": str(tmp_path / "jobs.db"), "maintenance": False}))
    made._look()
    yield made
    made.close()


class Lost:
    """A question to the store that is not answered, once."""

    def __init__(self, ask: Callable[..., Any], after: int = 0) -> None:
        self._request = ask
        self._after = after

    def __call__(self, *given: Any) -> Any:
        self._after -= 1
        if self._after == -1:
            raise tampu.Unavailable("the connection broke")
        return self._request(*given)


def _look_twice(node: ServerState) -> list[str]:
    with pytest.raises(tampu.Unavailable):
        node._look()
    return node._look()


def test_a_change_of_settings_is_seen_also_when_the_store_was_away_in_the_middle(
    node: ServerState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tampu.open(str(tmp_path / "jobs.db"), maintenance=False) as other:
        other.publish("jobs", 1)
        assert node.core.settings.get("default", "jobs").max_attempts != 2
        other.queues.put("jobs", max_attempts=2)
    monkeypatch.setattr(node.core.engine, "revision", Lost(node.core.engine.revision, after=1))
    _look_twice(node)
    assert node.core.settings.get("default", "jobs").max_attempts == 2


@pytest.mark.parametrize("answered", [0, 1])
def test_a_revocation_is_noticed_also_when_the_store_was_away_in_the_middle(
    node: ServerState, monkeypatch: pytest.MonkeyPatch, answered: int
) -> None:
    places = []
    for name in ("first", "second"):
        key, token = keys.mint("default", name, FULL, node.core.engine.now())
        node.core.coalescer.submit(keys.saving(key, 0))
        place = keys.split(token)
        assert place is not None
        known = node.authenticator.key_cache._read(*place)
        assert known is not None
        node.authenticator.key_cache._known[place] = known
        places.append(place)
    node._look()
    for id, _ in places:
        node.core.coalescer.submit(keys.revoking(id))
    monkeypatch.setattr(node.core.engine, "document", Lost(node.core.engine.document, after=answered))
    assert sorted(_look_twice(node)) == sorted(id for id, _ in places)
    assert all(node.authenticator.key_cache.find(*place) is None for place in places)


def test_a_key_that_is_revoked_while_it_is_read_is_not_kept(node: ServerState, monkeypatch: pytest.MonkeyPatch) -> None:
    key, token = keys.mint("default", "late", FULL, node.core.engine.now())
    node.core.coalescer.submit(keys.saving(key, 0))
    place = keys.split(token)
    assert place is not None
    key_cache = node.authenticator.key_cache
    read, times = key_cache._read, 0

    def slow(id: str, secret_hash: bytes) -> Any:
        nonlocal times
        times += 1
        found = read(id, secret_hash)
        if times == 1:
            node.core.coalescer.submit(keys.revoking(key.id))
            node._look()
        return found

    monkeypatch.setattr(key_cache, "_read", slow)
    with pytest.raises(tampu.Unauthorized):
        asyncio.run(key_cache.check(*place))
    assert key_cache.find(*place) is None
