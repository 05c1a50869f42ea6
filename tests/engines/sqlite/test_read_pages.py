"""Looking for few among many: in pages of a sensible size, whatever the limit."""

from __future__ import annotations

import pytest

import tampu
from tampu.engines.sqlite import SqliteEngine


def test_a_small_limit_does_not_make_small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    page = SqliteEngine.page

    def counted(self: SqliteEngine, *args: object) -> object:
        asked.append(1)
        return page(self, *args)  # type: ignore[arg-type]  # what it was called with

    monkeypatch.setattr(SqliteEngine, "page", counted)
    with tampu.open("memory://", maintenance=False) as store:
        store.publish_many(
            "jobs", [tampu.NewMessage(n, type="rare" if n % 1000 == 999 else "usual") for n in range(3000)]
        )
        found, after = [], None
        for _ in range(3):
            some = store.messages("jobs", state="ready", where={"type": "rare"}, limit=1, after=after)
            found += [m.payload for m in some]
            after = some.cursor
    assert found == [999, 1999, 2999]
    assert len(asked) < 15
