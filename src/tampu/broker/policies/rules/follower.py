"""The follower of rules: what they do when a message was completed, has failed, is dead, has expired
or was reviewed.

What a rule publishes has an id derived from the transition, and is stored with the position of the follower: exactly
one effect, however often anything crashes.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

from tampu.broker.followers import Effects
from tampu.broker.policies import cel, seen
from tampu.broker.policies.rules.names import FOLLOWER, HOPS, MOST_HOPS, hops_of
from tampu.broker.policies.webhooks import deliveries
from tampu.model.config import SYSTEM
from tampu.model.definitions import Action, Rule, Webhook, matches
from tampu.model.errors import InvalidConfig
from tampu.model.journal import Transition
from tampu.model.message import Message, State
from tampu.model.reasons import REFUSED

log = logging.getLogger("tampu")
_ENDS = {State.DONE: "completed", State.DEAD: "dead", State.EXPIRED: "expired"}


def triggers_of(transition: Transition) -> tuple[str, ...]:
    """The triggers that a transition is. Whether a message was freed because of a review, only the message says."""
    if transition.queue.startswith(SYSTEM):
        return ()
    if transition.state in _ENDS and transition.verb != "adopt":
        refused = transition.state is State.DEAD and transition.detail == REFUSED
        return (_ENDS[transition.state], "reviewed") if refused else (_ENDS[transition.state],)
    if transition.verb == "free":
        return ("reviewed",)
    return ("failed",) if transition.verb in ("nack", "reap") else ()


def _applies(trigger: str, message: Message) -> bool:
    if trigger != "reviewed":
        return True
    review = message.review
    return message.reason == REFUSED or (review is not None and review.decision is not None)


class RuleFollower:
    name = FOLLOWER

    def handle(self, transitions: Sequence[Transition], effects: Effects) -> None:
        rules_of = functools.cache(lambda tenant: _rules(effects, tenant))
        for cause in transitions:
            message = None
            for trigger in triggers_of(cause):
                rules = [
                    rule for rule in rules_of(cause.tenant) if rule.trigger == trigger and rule.applies_to(cause.queue)
                ]
                message = message or (effects.message(cause) if rules else None)
                if message is not None and _applies(trigger, message):
                    _apply_all(effects, cause, message, rules)


def _rules(effects: Effects, tenant: str) -> list[Rule]:
    found = [one for one in effects.definitions(tenant) if isinstance(one, Rule)]
    return sorted(found, key=lambda rule: (rule.order, rule.name))


def _apply_all(effects: Effects, cause: Transition, message: Message, rules: Sequence[Rule]) -> None:
    context = None
    for rule in rules:
        if not matches(rule.types, message.body.type or ""):
            continue
        try:
            if context is None:
                context = seen.of_message(message)
            if not cel.compiled(rule.when).is_true(context):
                continue
            for action in rule.actions:
                _act(effects, cause, message, rule, action, context)
        except (cel.Failed, InvalidConfig) as error:
            _log(rule, cause, str(error))
            continue
        if not rule.go_on:
            return


def _act(effects: Effects, cause: Transition, message: Message, rule: Rule, action: Action, context: Any) -> None:
    hops = hops_of(message.headers) + 1
    if hops > MOST_HOPS:
        _log(rule, cause, f"rules have copied it {MOST_HOPS} times")
        return
    options: dict[str, Any] = {
        "headers": {**message.headers, HOPS: str(hops)}, "correlation_id": message.correlation_id or message.id,
        "type": message.body.type, "labels": message.labels or None,
    }  # fmt: skip
    if action.copy is not None:
        queue, payload = action.copy, message.body.payload
        options["content_type"] = message.body.content_type
    elif action.webhook is not None:
        _call(effects, cause, message, rule, action.webhook)
        return
    elif action.publish is not None:
        new = action.publish
        queue, payload = new.queue, new.payload
        options |= {"type": new.type, "labels": new.labels}
        if new.expression is not None:
            payload = cel.compiled(new.expression).value(context)
    else:
        return
    why = effects.refusal(cause, queue, payload, **options)
    if why is None:
        effects.publish(cause, queue, payload, **options)
    else:
        _log(rule, cause, why)


def _call(effects: Effects, cause: Transition, message: Message, rule: Rule, webhook: Webhook) -> None:
    try:
        payload = message.payload
    except (ValueError, TypeError):
        raise cel.Failed("the payload cannot be decoded") from None
    shown = {
        "id": message.id, "queue": message.queue, "type": message.body.type, "payload": payload,
        "labels": message.labels, "headers": message.headers, "priority": message.body.priority,
        "correlation_id": message.correlation_id, "state": message.state.value, "reason": message.reason,
        "error": message.last_error, "attempts": message.attempts,
    }  # fmt: skip
    fields = deliveries.fields_of(webhook, {"rule": rule.name, "trigger": rule.trigger, "message": shown})
    correlation = message.correlation_id or message.id
    effects.publish(cause, deliveries.QUEUE, fields.pop("payload"), correlation_id=correlation, **fields)


def _log(rule: Rule, cause: Transition, why: str) -> None:
    log.warning("rule %s cannot be applied to message %s of queue %s: %s", rule.name, cause.id, cause.queue, why)
