"""`tampu rule`: put, list, show, delete and test rules."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

import tampu
from tampu.cli import output
from tampu.cli.app import command, group, option
from tampu.cli.commands.work import publish
from tampu.cli.definitions import Name, add_commands, read_document
from tampu.cli.session import Session

_PANEL = "Policies"
rule = group("rule", _PANEL, "What happens to messages for which an expression is true")


@command("put", _PANEL, of=rule)
def put(
    session: Session,
    name: Name,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The rule as JSON or YAML; - is standard input")],
) -> None:
    """Create a rule, or change the one with this name.

    The file has the fields of `store.rules.put`: when, actions, trigger, queues, types, order, continue, paused.
    """
    document = read_document(file, "rule")
    if not isinstance(document, dict):
        raise tampu.InvalidConfig("a rule is an object with when and actions", field="rule")
    fields: dict[str, Any] = {key: value for key, value in document.items() if key not in ("name", "version")}
    fields["go_on"] = fields.pop("continue", False)

    def act(store: tampu.Store) -> tampu.Rule:
        try:
            return store.rules.put(name, **fields)
        except TypeError as error:
            raise tampu.InvalidConfig(f"rules have no such field: {error}", field="rule") from None

    with session.open_or_create(act) as store:
        made = act(store)
    session.out.answer(msgspec.to_builtins(made), f"{made.name} is version {made.version}", "green")


@command("test", _PANEL, of=rule)
def try_rule(
    session: Session,
    name: Name,
    payload: publish.Payload = None,
    id: Annotated[str | None, option("--id", "A message that exists, in place of a payload")] = None,
    queue: Annotated[str | None, option("--queue", "The queue that it would be published to", metavar="QUEUE")] = None,
    type: publish.Type = None,
    priority: publish.Priority = 0,
) -> None:
    """Say whether a rule matches a message, why, and what it would do. Nothing is changed."""
    value = None
    if payload is not None:
        value, _ = publish.read_payload(payload, None, text=False, content_type=None)
    with session.open() as store:
        found = store.rules.test(name, value, id=id, queue=queue, type=type, priority=priority)
    if session.json:
        session.out.document(msgspec.to_builtins(found))
        return
    verdict = "matches" if found.matched else "does not match"
    lines = [f"{name} {verdict}: {found.why}", *(f"would {one}" for one in found.would)]
    if found.error is not None:
        lines.append(f"error: {found.error}")
    session.out.show(output.text("\n".join(lines), "green" if found.matched else "yellow"))


add_commands(
    rule, _PANEL, "rule", "rules", ["trigger", "queues", "when", "actions"],
    lambda one: [
        "paused" if one.paused else one.trigger, ", ".join(one.queues) or "*", one.when,
        ", ".join(name for action in one.actions for name in msgspec.to_builtins(action)),
    ],
)  # fmt: skip
