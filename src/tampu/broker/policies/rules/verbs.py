"""The verbs of rules: put, get, list, delete, and testing one on a message."""

from __future__ import annotations

from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.core import Read, Steps
from tampu.broker.policies import cel, seen
from tampu.broker.policies.definitions import DefinitionVerbs, Kind, texts
from tampu.broker.policies.rules.names import FOLLOWER
from tampu.broker.policies.rules.step import micros
from tampu.broker.policies.webhooks import deliveries
from tampu.broker.publish_steps import Draft
from tampu.model.definitions import Action, Rule, RuleTest, Trigger, matches
from tampu.model.errors import InvalidConfig, NotFound
from tampu.model.message import Message, NewMessage

MOST_ACTIONS = 10
_OF_ENDED = ("copy", "publish", "webhook")
"""Actions that make sense when a message has ended."""
_QUEUES = ("route", "copy")


class Rules(Kind[Rule]):
    word = "rule"
    plural = "rules"
    struct = Rule

    def check(self, definition: Rule) -> Rule:
        texts(definition.queues, "queues")
        texts(definition.types, "types")
        cel.expression(definition.when, "when")
        validate.whole(definition.order, "order", -1_000_000, 1_000_000)
        if not 0 < len(definition.actions) <= MOST_ACTIONS:
            raise InvalidConfig(f"a rule has 1 to {MOST_ACTIONS} actions", field="actions")
        for number, action in enumerate(definition.actions):
            _check_action(action, f"actions[{number}]", ended=definition.trigger != "published")
        return definition

    def follower(self, definition: Rule) -> str | None:
        return None if definition.trigger == "published" else FOLLOWER

    def marks(self, definition: Rule) -> tuple[tuple[str, str], ...]:
        return (deliveries.TENANTS,) if any(action.webhook is not None for action in definition.actions) else ()

    def places(self, definition: Rule) -> tuple[str, ...]:
        return (*(definition.queues or ("*",)), *targets(definition))


def targets(rule: Rule) -> list[str]:
    """The queues that a rule puts messages into."""
    found = [getattr(action, name) for action in rule.actions for name in _QUEUES]
    found += [action.publish.queue for action in rule.actions if action.publish is not None]
    found += [action.escalate.notify for action in rule.actions if action.escalate is not None]
    return [queue for queue in found if queue is not None]


def given(action: Action) -> list[str]:
    """The names of the fields that an action has."""
    return [name for name in Action.__struct_fields__ if getattr(action, name) not in (None, False)]


def _check_action(action: Action, field: str, *, ended: bool) -> None:
    names = given(action)
    if len(names) != 1:
        one_of = ", ".join(Action.__struct_fields__)
        raise InvalidConfig(f"{field} must have exactly one of {one_of}", field=field)
    if ended and names[0] not in _OF_ENDED:
        raise InvalidConfig(
            f"{field}: {names[0]} is for messages that are being published", field=field,
            hint=f"with this trigger use {' or '.join(_OF_ENDED)}",
        )  # fmt: skip
    for queue in (action.route, action.copy, action.publish and action.publish.queue):
        if queue is not None:
            validate.name(queue, "queue")
    if action.escalate is not None and action.escalate.notify is not None:
        validate.name(action.escalate.notify, "queue")
    if action.transform is not None:
        cel.expression(action.transform, f"{field}.transform")
    if action.publish is not None and action.publish.expression is not None:
        cel.expression(action.publish.expression, f"{field}.publish.expression")
    if action.webhook is not None:
        deliveries.check(action.webhook, f"{field}.webhook")
    if action.set is not None:
        for name in ("delay", "deadline"):
            value = getattr(action.set, name)
            if value is not None:
                micros(value, f"{field}.set.{name}")


RULES = Rules()


class RuleVerbs(DefinitionVerbs):
    def put_rule(
        self,
        name: str,
        *,
        actions: list[dict[str, Any]],
        when: str = "true",
        trigger: Trigger = "published",
        queues: str | list[str] | tuple[str, ...] | None = None,
        types: str | list[str] | tuple[str, ...] | None = None,
        order: int = 0,
        go_on: bool = False,
        paused: bool = False,
    ) -> Steps[Rule]:
        """Do something with messages for which the CEL expression ``when`` is true.

        ``actions`` are carried out in order: ``{"route": queue}``, ``{"copy": queue}``, ``{"set": {...}}``,
        ``{"transform": expression}``, ``{"escalate": {...}}``, ``{"archive": True}``, ``{"publish": {...}}``,
        ``{"webhook": {"url": ...}}``. All that a publish causes happens in its unit. Of the rules of a queue, by
        ``order`` and name, the first that matches is the last, unless it has ``go_on``. A rule that cannot be applied
        leaves the message where it was going.
        """
        fields = {
            "actions": actions, "when": when, "trigger": trigger, "queues": texts(queues, "queues"),
            "types": texts(types, "types"), "order": order, "continue": go_on, "paused": paused,
        }  # fmt: skip
        return (yield from self.put_definition(RULES, RULES.made(name, fields)))

    def get_rule(self, name: str) -> Steps[Rule]:
        """A rule as it is now."""
        return (yield from self.get_definition(RULES, name))

    def list_rules(self) -> Steps[list[Rule]]:
        """All rules, by name."""
        return (yield from self.list_definitions(RULES))

    def delete_rule(self, name: str) -> Steps[bool]:
        """Delete a rule; false if there was none."""
        return (yield from self.delete_definition(RULES, name))

    def test_rule(
        self,
        name: str,
        payload: Any = None,
        *,
        id: str | None = None,
        queue: str | None = None,
        type: str | None = None,
        labels: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        priority: int = 0,
    ) -> Steps[RuleTest]:
        """What the rule would do to a message, and why. Nothing is changed.

        The message is one that exists (``id``), or one with this ``payload`` and options of `publish`, in ``queue`` or
        in the first queue that the rule names.
        """
        rule = yield from self.get_rule(name)
        if id is not None:
            wanted = validate.id_text(id)
            message: Message | None = yield Read(lambda engine: engine.get(self.tenant, wanted))
            if message is None:
                raise NotFound(f"no message {wanted}", field="id")
            return _tested(rule, message.queue, message.body.type, lambda: seen.of_message(message))
        where = validate.name(queue or next((q for q in rule.queues if "*" not in q), "test"), "queue")
        item = validate.item(
            where,
            self.core.settings.get(self.tenant, where),
            NewMessage(payload, type, priority, labels=labels, headers=headers),
        )
        draft = Draft(where, validate.from_body(item.body), item, None)
        return _tested(rule, where, item.body.type, lambda: seen.of_draft(draft))


def _tested(rule: Rule, queue: str, type: str | None, context: Any) -> RuleTest:
    if not matches(rule.queues, queue):
        return RuleTest(rule.name, False, f"the rule is for queues {', '.join(rule.queues)}, not for {queue}")
    if not matches(rule.types, type or ""):
        return RuleTest(rule.name, False, f"the rule is for types {', '.join(rule.types)}, not for {type or 'none'}")
    expression = cel.compiled(rule.when)
    try:
        made = context()
        why = expression.explained(made)
        if not expression.is_true(made):
            return RuleTest(rule.name, False, why)
    except cel.Failed as error:
        return RuleTest(rule.name, False, expression.source, error=str(error))
    return RuleTest(rule.name, True, why, [_words(action) for action in rule.actions])


def _words(action: Action) -> str:
    (name,) = given(action)
    value = getattr(action, name)
    return name if value is True else f"{name} {msgspec.json.encode(value).decode()}"
