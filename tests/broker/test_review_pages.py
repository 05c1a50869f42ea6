"""Pages of reviews, where the engine makes no difference: all of them come, each once, with bounded reading."""

from __future__ import annotations

import pytest

import tampu
from tampu.broker.policies.reviews import verbs


def test_pages_have_each_review_once_and_read_a_bounded_number_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "MOST_LOOKED_AT", 10)
    monkeypatch.setattr(verbs, "_STEP", 4)
    with tampu.open("memory://", maintenance=False) as store:
        ids: dict[str, list[str]] = {"a": [], "b": [], "c": []}
        for n in range(30):
            for queue, own in ids.items():
                if queue != "b" or n > 24:
                    own.append(store.publish(queue, n, review={"roles": ["x" if n % 3 else "y"]}).id)
                else:
                    store.publish(queue, n, hold="by hand")
        expected = [id for queue in sorted(ids) for id in ids[queue]]
        for limit in (1, 3, 4, 7, 1000):
            found, after, calls = [], None, 0
            while calls == 0 or after is not None:
                page = store.reviews.list(after=after, limit=limit)
                assert len(page) <= limit
                found += [review.id for review in page]
                after, calls = page.cursor, calls + 1
            assert found == expected
        assert [r.queue for r in store.reviews.list(role="y", queue="b", limit=10)] == [], "it has looked at ten others"
        for bad in ("x", "", 5):
            with pytest.raises(tampu.InvalidMessage):
                store.reviews.list(after=bad)  # type: ignore[arg-type]  # wrong on purpose
