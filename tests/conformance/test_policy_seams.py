"""A policy is a new file with a publish step and a follower. It works on every engine without changing one."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence

from tampu.broker import followers, publish_steps
from tampu.broker.followers import Effects
from tampu.broker.publish_steps import Batch, Draft
from tampu.broker.settings import Settings
from tampu.broker.store import Store
from tampu.model.journal import Transition
from tampu.model.message import State
from tests.conformance.harness import Harness


class CheckOrders:
    """A publish step: an order needs a customer, and is labelled by its size."""

    def wants(self, queue: str, settings: Settings) -> bool:
        return queue == "orders"

    def apply(self, batch: Batch, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            if not draft.payload.get("customer"):
                draft.refuse("an order needs a customer", field="payload.customer")
            draft.change(labels={"size": "large" if draft.payload["total"] > 100 else "small"})


class TellCustomers:
    """A follower: the customer hears how the order ended."""

    name = "tell-customers"

    def handle(self, transitions: Sequence[Transition], effects: Effects) -> None:
        for moved in transitions:
            if moved.queue == "orders" and moved.state in (State.DONE, State.DEAD):
                order = effects.message(moved)
                if order is not None:
                    effects.publish(moved, "mails", {"to": order.payload["customer"], "state": order.state})


def test_a_toy_publish_step_and_a_toy_follower_are_a_policy(store: Store, harness: Harness) -> None:
    with publish_steps.registered(CheckOrders()), followers.registered(TellCustomers()):
        harness.follow()
        store.publish("orders", {"customer": "ada", "total": 500})
        store.publish("orders", {"customer": "bob", "total": 5})
        ada, bob = store.claim("orders", limit=2)
        assert (ada.message.labels, bob.message.labels) == ({"size": "large"}, {"size": "small"})
        store.ack(ada)
        store.reject(bob)
        harness.follow()
        assert [m.payload for m in store.messages("mails")] == [
            {"to": "ada", "state": "done"},
            {"to": "bob", "state": "dead"},
        ]


def test_the_toy_policy_has_less_than_forty_lines_and_imports_no_engine() -> None:
    lines = [line for part in (CheckOrders, TellCustomers) for line in inspect.getsource(part).splitlines()]
    assert len(lines) < 40
    here = ast.parse(inspect.getsource(inspect.getmodule(CheckOrders)))  # type: ignore[arg-type]  # it is this one
    imported = [node.module or "" for node in ast.walk(here) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in imported if name.startswith("tampu.engines")]
