"""The verbs of subscriptions: put, get, list and delete."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tampu.broker import recovery, validate
from tampu.broker.audit import Recording
from tampu.broker.core import Steps
from tampu.broker.policies import cel
from tampu.broker.policies.definitions import DefinitionVerbs, Kind
from tampu.broker.policies.subscriptions import fill
from tampu.engines.port import PutDocument
from tampu.model.definitions import Subscription
from tampu.model.errors import InvalidConfig, NotFound


class Subscriptions(Kind[Subscription]):
    word = "subscription"
    plural = "subscriptions"
    struct = Subscription

    def check(self, definition: Subscription) -> Subscription:
        if definition.name != definition.own_queue:
            raise InvalidConfig(f"the name must be {definition.own_queue}", field="name")
        if definition.filter is not None:
            cel.expression(definition.filter, "filter")
        if definition.start is not None:
            fill.check_start(definition.start)
        return definition

    def implied(self, name: str) -> dict[str, Any]:
        queue, _, subscriber = name.partition("@")
        return {"queue": queue, "subscriber": subscriber}

    def check_change(self, old: Subscription, new: Subscription) -> None:
        if new.start != old.start:
            raise InvalidConfig(
                f"the start of {old.name} is {old.start or 'now'} and cannot be changed",
                field="start",
                hint="pass the same start, or delete the subscription first",
            )

    def beginning(self, tenant: str, definition: Subscription) -> list[PutDocument]:
        return fill.beginning(tenant, definition)

    def afterwards(self, verbs: Recording, definition: Subscription) -> Steps[None]:
        if definition.start is not None:
            yield from fill.fill(verbs, definition)

    def places(self, definition: Subscription) -> tuple[str, ...]:
        return (definition.queue, definition.own_queue)


SUBSCRIPTIONS = Subscriptions()


def _name(queue: str, subscriber: str) -> str:
    return f"{validate.name(queue, 'queue')}@{validate.name(subscriber, 'subscriber')}"


class SubscriptionVerbs(DefinitionVerbs):
    def put_subscription(
        self,
        queue: str,
        subscriber: str,
        *,
        filter: str | None = None,
        labels: dict[str, str] | None = None,
        start: str | datetime | None = None,
    ) -> Steps[Subscription]:
        """From now on, a copy of what is published to the broadcast queue is in ``queue@subscriber``.

        That is a queue of its own, with its own leases, retries and dead letters; it inherits the settings of
        ``queue``. With the CEL expression ``filter`` it only gets messages for which that is true. The queue must have
        ``consumer_mode="broadcast"`` for this to have an effect.

        With ``start="beginning"`` or a time, it also gets what was published before, each message once, as far as the
        journal and the ended messages of ``queue`` are kept. This returns when it has them; if this process dies,
        maintenance goes on, and so does the same put again.
        """
        since = start.isoformat() if isinstance(start, datetime) else start
        fields = {"queue": queue, "subscriber": subscriber, "filter": filter, "labels": labels or {}, "start": since}
        made = SUBSCRIPTIONS.made(_name(queue, subscriber), fields)
        return (yield from self.put_definition(SUBSCRIPTIONS, made))

    def go_on_filling(self, name: str) -> Steps[None]:
        """Fill the subscription with this queue, whose caller has died, unless it was deleted."""
        queue, _, subscriber = name.partition("@")
        try:
            found = yield from self.get_subscription(queue, subscriber)
        except NotFound:
            found = None
        if found is None or found.start is None:
            yield recovery.unmarked(fill.KIND, self.tenant, name)
        else:
            yield from fill.fill(self, found)

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
