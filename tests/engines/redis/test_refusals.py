"""A batch that may be refused for several reasons is refused for the first of its items, as on every engine."""

import pytest

import tampu
from tampu import NewMessage


@pytest.mark.parametrize("first", ["full", "conflict"])
def test_the_first_item_that_is_refused_says_why(url: str, first: str) -> None:
    with tampu.open(url, maintenance=False) as store:
        store.publish("jobs", "first", idempotency_key="i")
        store.queues.put("jobs", max_depth=1)
        items = [NewMessage("too many"), NewMessage("another body", idempotency_key="i")]
        if first == "conflict":
            items.reverse()
        with pytest.raises(tampu.QueueFull if first == "full" else tampu.IdempotencyConflict):
            store.publish_many("jobs", items)
        assert store.stats("jobs").ready == 1
