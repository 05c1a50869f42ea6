"""Random rules, subscriptions, reviews and publishes: what is in which queue is what a plain model says.

Many histories in memory, and one on each other kind of engine.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import tampu
from tests.conformance.conftest import EVERY
from tests.conformance.harness import Kit
from tests.conformance.served import build

QUEUES = ("in", "next", "copies", "news")
SUBSCRIBERS = ("all", "few", "none")
FILTERS: dict[str | None, Any] = {
    None: lambda _n, _type: True,
    "message.payload.n > 2": lambda n, _type: n > 2,
    "message.payload.n > 2 || message.type == 'a'": lambda n, type: n > 2 or type == "a",
    "message.payload.missing == 1": lambda _n, _type: False,
}
"""Expressions, and what they mean. The last has no value for any message."""
ACTIONS = ({"route": "next"}, {"copy": "copies"}, {"route": "news"}, {"set": {"labels": {"x": "y"}}}, {"archive": True})
_NAMES = st.sampled_from(["r1", "r2", "r3"])
_NEWS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["a", "b"]), st.sampled_from([None, None, "k1", "k2", "k3"])),
    min_size=1, max_size=4,
)  # fmt: skip


class Policies(RuleBasedStateMachine):
    def open(self) -> tampu.Store:
        return tampu.open("memory://", maintenance=False)

    def __init__(self) -> None:
        super().__init__()
        self.store = self.open()
        self.known: dict[str, tuple[str, str | None, dict[str, Any], bool]] = {}
        """(queue, expression, action, whether it goes on) by name."""
        self.subscriptions: dict[str, str | None] = {}
        self.there: dict[str, Counter[tuple[int, str, str]]] = {}
        """By queue: how many messages there are of each number, type and state."""
        self.keys: set[tuple[str, str | None]] = set()
        self.reviews: dict[str, tuple[int, list[str]]] = {}
        """Open reviews by id: the number of the message, and who has approved."""
        self.decided: dict[str, str] = {}

    @initialize()
    def configure(self) -> None:
        self.store.queues.put("news", consumer_mode="broadcast")

    def teardown(self) -> None:
        self.store.close()

    @rule(
        name=_NAMES, queue=st.sampled_from(["in", "next", "news"]), when=st.sampled_from(list(FILTERS)),
        action=st.sampled_from(ACTIONS), go_on=st.booleans(),
    )  # fmt: skip
    def put_rule(self, name: str, queue: str, when: str | None, action: dict[str, Any], go_on: bool) -> None:
        self.store.rules.put(name, queues=queue, when=when or "true", actions=[action], go_on=go_on)
        self.known[name] = (queue, when, action, go_on)

    @rule(name=_NAMES)
    def delete_rule(self, name: str) -> None:
        assert self.store.rules.delete(name) == (self.known.pop(name, None) is not None)

    @rule(name=st.sampled_from(SUBSCRIBERS), filter=st.sampled_from(list(FILTERS)))
    def subscribe(self, name: str, filter: str | None) -> None:
        self.store.subscriptions.put("news", name, filter=filter)
        self.subscriptions[name] = filter

    @rule(name=st.sampled_from(SUBSCRIBERS))
    def unsubscribe(self, name: str) -> None:
        known = self.subscriptions.pop(name, "absent") != "absent"
        assert self.store.subscriptions.delete("news", name) == known

    @rule(queue=st.sampled_from(QUEUES), news=_NEWS)
    def publish(self, queue: str, news: list[tuple[int, str, str | None]]) -> None:
        """A key that was used before is not used again here: `publish_twice` does that."""
        sent: list[tampu.NewMessage] = []
        for n, type, key in news:
            if key is None or (queue, key) not in self.keys:
                self.keys.add((queue, key))
                sent.append(tampu.NewMessage({"n": n}, type=type, idempotency_key=key and f"{queue}/{key}"))
                self._arrive(queue, n, type)
        self.store.publish_many(queue, sent)

    @rule(queue=st.sampled_from(QUEUES), n=st.integers(0, 5), key=st.uuids().map(str))
    def publish_twice(self, queue: str, n: int, key: str) -> None:
        for _ in range(2):
            self.store.publish(queue, {"n": n}, type="a", idempotency_key=key)
        self._arrive(queue, n, "a")

    @rule(name=st.sampled_from(SUBSCRIBERS), limit=st.integers(1, 3))
    def work(self, name: str, limit: int) -> None:
        for lease in self.store.claim(f"news@{name}", limit=limit):
            self.store.ack(lease)
            about = (lease.payload["n"], lease.message.type)
            self.there[f"news@{name}"][*about, "ready"] -= 1
            self.there[f"news@{name}"][*about, "done"] += 1

    @rule(n=st.integers(0, 5))
    def ask(self, n: int) -> None:
        """Publish with a review that two persons must approve."""
        made = self.store.publish("desk", {"n": n}, type="a", review={"approvals": 2})
        self.reviews[made.id] = n, []
        self._store("desk", n, "a", "held")

    @precondition(lambda self: self.reviews or self.decided)
    @rule(data=st.data(), by=st.sampled_from(["ada", "bob", "eve"]), option=st.sampled_from(["approve", "refuse"]))
    def decide(self, data: st.DataObject, by: str, option: str) -> None:
        id = data.draw(st.sampled_from(sorted({*self.reviews, *self.decided})))
        n, voters = self.reviews.get(id, (0, []))
        same = f"{option} by {by}" in self.decided.get(id, "") or (option == "approve" and by in voters)
        if id not in self.reviews or by in voters:
            try:
                self.store.reviews.decide(id, option, by=by)
            except tampu.InvalidState:
                assert not same, "who decides the same again is answered as before"
            else:
                assert same
            return
        made = self.store.reviews.decide(id, option, by=by)
        voters.append(by)
        ends = option == "refuse" or len(voters) == 2
        assert made.state == ("decided" if ends else "open")
        if ends:
            del self.reviews[id]
            self.decided[id] = ", ".join(f"{'approve' if one != by else option} by {one}" for one in voters)
            self._move("desk", n, "a", "held", "ready" if option == "approve" else "dead")

    @rule()
    def work_at_the_desk(self) -> None:
        for lease in self.store.claim("desk", limit=2):
            assert lease.id in self.decided, "nobody gets what is not decided"
            self.store.ack(lease)
            self._move("desk", lease.payload["n"], "a", "ready", "done")

    def _move(self, queue: str, n: int, type: str, before: str, after: str) -> None:
        self.there[queue][n, type, before] -= 1
        self._store(queue, n, type, after)

    # -- the model

    def _actions(self, queue: str, n: int, type: str) -> Iterator[dict[str, Any]]:
        """What rules do with a message in a queue, up to the first that ends or moves it or is the last."""
        for _, (where, when, action, go_on) in sorted(self.known.items()):
            if where == queue and FILTERS[when](n, type):
                yield action
                if "archive" in action or action.get("route", queue) != queue or not go_on:
                    return

    def _arrive(self, queue: str, n: int, type: str, hops: int = 0) -> None:
        for action in self._actions(queue, n, type):
            target = action.get("copy") or action.get("route", queue)
            if "archive" in action:
                self._store(queue, n, type, "cancelled")
                return
            if target == queue:
                continue
            if hops == 8:
                self._store(queue, n, type, "dead")
                return
            self._arrive(target, n, type, hops + 1)
            if "route" in action:
                return
        self._store(queue, n, type, "done" if queue == "news" else "ready")
        for name, filter in self.subscriptions.items():
            if queue == "news" and FILTERS[filter](n, type):
                self._store(f"news@{name}", n, type, "ready")

    def _store(self, queue: str, n: int, type: str, state: str) -> None:
        self.there.setdefault(queue, Counter())[n, type, state] += 1

    @invariant()
    def open_reviews_are_listed(self) -> None:
        assert {one.id for one in self.store.reviews.list(limit=1000)} == set(self.reviews)

    @invariant()
    def each_queue_has_what_the_model_says(self) -> None:
        found = {
            queue: Counter((m.payload["n"], m.type, str(m.state)) for m in self.store.messages(queue, limit=10_000))
            for queue in self.store.queues.list()
            if not queue.startswith("_tampu.")
        }
        assert {queue: counts for queue, counts in found.items() if counts} == {
            queue: +counts for queue, counts in self.there.items() if +counts
        }


TestPolicies = Policies.TestCase
TestPolicies.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize(
    "kit", [kit for kit in EVERY if kit.name not in ("memory", "valkey")], ids=lambda kit: kit.name
)
def test_policies_on_every_engine(kit: Kit, tmp_path: Path) -> None:
    """A few histories, each on a tenant of its own."""
    built = build(kit, tmp_path)
    tenants = itertools.count()

    class OnEngine(Policies):
        def open(self) -> tampu.Store:
            return built.open(tenant=f"t{next(tenants)}")

    try:
        run_state_machine_as_test(
            OnEngine, settings=settings(max_examples=2, stateful_step_count=20, deadline=None, phases=[Phase.generate])
        )
    finally:
        built.close()
