"""`tampu hold`: put, list, show and delete legal holds."""

from __future__ import annotations

from typing import Annotated

import msgspec

import tampu
from tampu.cli import parse
from tampu.cli.app import command, group, option
from tampu.cli.commands.work import publish
from tampu.cli.definitions import Name, add_commands
from tampu.cli.session import Session

_PANEL = "Policies"
hold = group("hold", _PANEL, "Legal holds: messages that must not be removed")


@command("put", _PANEL, of=hold)
def put(
    session: Session,
    name: Name,
    reason: Annotated[str, option("--reason", "Why, for people", metavar="TEXT")],
    queue: Annotated[list[str] | None, option("--queue", "Pattern of queues; may be repeated")] = None,
    label: publish.Labels = None,
    key: Annotated[str | None, option("--key", "Messages with this key", metavar="KEY")] = None,
    correlation: Annotated[
        str | None, option("--correlation-id", "Messages with this correlation id", metavar="ID")
    ] = None,
) -> None:
    """Create a legal hold, or change the one with this name. It covers messages that match all conditions."""
    labels = parse.pairs(label, "label")

    def act(store: tampu.Store) -> tampu.Hold:
        return store.holds.put(
            name, reason=reason, queues=queue or None, labels=labels, key=key, correlation_id=correlation
        )

    with session.open_or_create(act) as store:
        made = act(store)
    session.out.answer(msgspec.to_builtins(made), f"{made.name} is version {made.version}", "green")


add_commands(
    hold, _PANEL, "hold", "holds", ["queues", "labels", "key", "reason"],
    lambda one: [
        ", ".join(one.queues) or "*", ", ".join(f"{k}={v}" for k, v in one.labels.items()), one.key or "", one.reason,
    ],
)  # fmt: skip
