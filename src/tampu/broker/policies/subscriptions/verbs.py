"""The verbs of subscriptions: put, get, list and delete."""

from __future__ import annotations

from typing import Any

from tampu.broker import validate
from tampu.broker.core import Steps
from tampu.broker.policies import cel
from tampu.broker.policies.definitions import DefinitionVerbs, Kind
from tampu.model.definitions import Subscription
from tampu.model.errors import InvalidConfig


class Subscriptions(Kind[Subscription]):
    word = "subscription"
    plural = "subscriptions"
    struct = Subscription

    def check(self, definition: Subscription) -> Subscription:
        if definition.name != definition.own_queue:
            raise InvalidConfig(f"the name must be {definition.own_queue}", field="name")
        if definition.filter is not None:
            cel.expression(definition.filter, "filter")
        return definition

    def implied(self, name: str) -> dict[str, Any]:
        queue, _, subscriber = name.partition("@")
        return {"queue": queue, "subscriber": subscriber}

    def places(self, definition: Subscription) -> tuple[str, ...]:
        return (definition.queue, definition.own_queue)


SUBSCRIPTIONS = Subscriptions()


def _name(queue: str, subscriber: str) -> str:
    return f"{validate.name(queue, 'queue')}@{validate.name(subscriber, 'subscriber')}"


class SubscriptionVerbs(DefinitionVerbs):
    def put_subscription(
        self, queue: str, subscriber: str, *, filter: str | None = None, labels: dict[str, str] | None = None
    ) -> Steps[Subscription]:
        """From now on, a copy of what is published to the broadcast queue is in ``queue@subscriber``.

        That is a queue of its own, with its own leases, retries and dead letters; it inherits the settings of
        ``queue``. With the CEL expression ``filter`` it only gets messages for which that is true. The queue must have
        ``consumer_mode="broadcast"`` for this to have an effect.
        """
        fields = {"queue": queue, "subscriber": subscriber, "filter": filter, "labels": labels or {}}
        made = SUBSCRIPTIONS.made(_name(queue, subscriber), fields)
        return (yield from self.put_definition(SUBSCRIPTIONS, made))

    def get_subscription(self, queue: str, subscriber: str) -> Steps[Subscription]:
        """A subscription as it is now."""
        return (yield from self.get_definition(SUBSCRIPTIONS, _name(queue, subscriber)))

    def list_subscriptions(self, queue: str | None = None) -> Steps[list[Subscription]]:
        """All subscriptions, or those of one queue, by name."""
        found = yield from self.list_definitions(SUBSCRIPTIONS)
        return [one for one in found if queue in (None, one.queue)]

    def delete_subscription(self, queue: str, subscriber: str) -> Steps[bool]:
        """Nothing new for this subscriber; false if there was no such subscription. What it has got stays."""
        return (yield from self.delete_definition(SUBSCRIPTIONS, _name(queue, subscriber)))
