"""A flood of calls is several commits: each caller gets the outcome of its own commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.engines.port import Call, Publish
from tests.conformance.harness import payloads


@pytest.mark.parametrize("together", [1, 2])
def test_a_commit_that_fails_is_reported_to_its_own_callers(
    url: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tampu.open(url, maintenance=False) as store:
        engine: Any = access.engine(store)
        asked: list[Call] = []
        run, insist = engine.run, engine._commit_with_retries

        def note(calls: Sequence[Call]) -> Any:
            asked.extend(call for call in calls if isinstance(call, Publish))
            return run(calls)

        monkeypatch.setattr(engine, "run", note)
        for n in range(3 * together):
            store.publish_many("jobs", [n, n])
        store.settle([tampu.Ack(lease) for lease in store.claim("jobs", limit=20)])
        monkeypatch.setattr("tampu.engines.sql.engine._MOST_ITEMS", 2 * together)

        def fail_the_second(calls: Sequence[Call]) -> Any:
            if calls[0] is asked[together]:
                raise tampu.StorageFull("the server's disk is full; nothing was stored")
            return insist(calls)

        monkeypatch.setattr(engine, "_commit_with_retries", fail_the_second)
        replies = run(asked)
        refused = [isinstance(reply, tampu.StorageFull) for reply in replies]
        assert refused == [False] * together + [True] * together + [False] * together
        stored = [n for n, failed in enumerate(refused) if not failed for _ in range(2)]
        assert payloads(store.claim("jobs", limit=20)) == stored
