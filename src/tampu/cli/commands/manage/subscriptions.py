"""`tampu subscription`: put, list, show and delete subscriptions of broadcast queues."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

import tampu
from tampu.cli.app import QueueName, command, group, option
from tampu.cli.session import Session

_PANEL = "Policies"
subscription = group("subscription", _PANEL, "Who gets what is published to broadcast queues")

Subscriber = Annotated[str, typer.Argument(metavar="SUBSCRIBER", help="Name of the subscriber")]


@command("put", _PANEL, of=subscription)
def put(
    session: Session,
    queue: QueueName,
    subscriber: Subscriber,
    filter: Annotated[str | None, option("--filter", "Only messages for which this is true", metavar="CEL")] = None,
    start: Annotated[
        str | None, option("--start", "Also what was published since then: beginning, or a time", metavar="TIME")
    ] = None,
) -> None:
    """Create a subscription, or change its filter. The queue needs consumer_mode=broadcast."""

    def act(store: tampu.Store) -> tampu.Subscription:
        return store.subscriptions.put(queue, subscriber, filter=filter, start=start)

    with session.open_or_create(act) as store:
        made = act(store)
        broadcast = store.queues.get(queue).consumer_mode == "broadcast"
    session.out.answer(msgspec.to_builtins(made), f"claim from {made.own_queue}", "green")
    if not broadcast:
        session.out.note(f"{queue} does not broadcast yet: tampu config {queue} consumer_mode=broadcast")


@command("list", _PANEL, of=subscription)
def list_subscriptions(session: Session) -> None:
    """List all subscriptions."""
    with session.open() as store:
        found = store.subscriptions.list()
    rows = ([one.queue, one.subscriber, one.own_queue, one.filter or ""] for one in found)
    document = {"subscriptions": [msgspec.to_builtins(one) for one in found]}
    session.out.rows(document, ["queue", "subscriber", "claims from", "filter"], rows, fold=["filter"])


@command("delete", _PANEL, of=subscription)
def delete(session: Session, queue: QueueName, subscriber: Subscriber) -> None:
    """Delete a subscription. What it has got stays in its queue."""
    with session.open() as store:
        if not store.subscriptions.delete(queue, subscriber):
            hint = "see tampu subscription list"
            raise tampu.NotFound(f"no subscription {subscriber} of {queue}", field="subscriber", hint=hint)
    session.out.answer({"name": f"{queue}@{subscriber}", "deleted": True}, f"{queue}@{subscriber} deleted")
