"""An erasure ends whatever happens to its caller."""

from __future__ import annotations

from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.broker.erasure.verbs import ErasureVerbs
from tampu.maintenance.recovery import Recovery
from tampu.testing import FakeClock

USER = {"user": "42"}


def test_an_erasure_is_completed_whatever_call_its_caller_dies_at() -> None:
    """At each step of the caller: maintenance ends it, and the report names all that was removed."""
    clock = FakeClock()
    store = tampu.open("memory://", clock=clock, maintenance=False)
    core: Any = access.core(store)
    for step in range(1, 200):
        ids = {store.publish("jobs", n, labels=USER, hold="x").id for n in range(3)}
        before = {one.id for one in store.erasures.list()}
        steps = ErasureVerbs(core, "default").erase(label=("user", "42"))
        answer: Any = None
        for _ in range(step):
            try:
                answer = core.do(steps.send(answer))
            except StopIteration:
                break
        else:
            steps.close()
            clock.advance(61)
            Recovery(core).work()
            new = [one for one in store.erasures.list() if one.id not in before]
            if not new:  # it died before it began
                store.purge("jobs", state="held")
            else:
                assert [(set(one.ids), one.status) for one in new] == [(ids, "done")], step
            continue
        break
    assert 10 < step < 199
    store.close()


def test_what_reviewers_wrote_is_erased_with_the_message() -> None:
    with tampu.open("memory://") as store:
        message = store.publish("loans", 1, labels=USER, review={"options": ["approve", "refuse"]})
        store.reviews.comment(message.id, "she has debts", by="bob")
        assert store.erase(label=("user", "42")).ids == [message.id]
        with pytest.raises(tampu.NotFound):
            store.reviews.get(message.id)
        core: Any = access.core(store)
        assert core.engine.documents("review", "default") == []
