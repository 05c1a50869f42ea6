"""The publish step of rules with the trigger ``published``: what they do happens in the unit of the publish."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from tampu.broker.policies import cel
from tampu.broker.policies.rules import seen
from tampu.broker.policies.rules.names import HOPS, MOST_HOPS, hops_of
from tampu.broker.publish_steps import Batch, Draft
from tampu.broker.settings import Settings
from tampu.model.definitions import Action, Changes, Rule, matches
from tampu.model.errors import InvalidConfig, InvalidMessage
from tampu.model.reasons import ROUTING_LOOP
from tampu.model.times import duration, moment, seconds_of

log = logging.getLogger("tampu")
RULE_ERROR = "tampu-rule-error"
"""The header of a message that a rule could not be applied to: the name of the rule, and why."""


class RuleStep:
    def wants(self, _queue: str, settings: Settings) -> bool:
        return bool(settings.rules)

    def apply(self, batch: Batch, drafts: Sequence[Draft]) -> None:
        waiting = list(drafts)
        while waiting:
            draft = waiting.pop(0)
            if draft.ends is None:
                known = len(batch.copies)
                _apply_all(batch, draft)
                waiting += batch.copies[known:]


def _apply_all(batch: Batch, draft: Draft) -> None:
    """Apply the rules of the queue, and again those of the queue to which one routes the message."""
    while draft.ends is None:
        queue = draft.queue
        rules = [rule for rule in batch.settings_of(queue).rules if matches(rule.types, draft.message.type or "")]
        context = None
        fields = cel.fields_used(tuple(source for rule in rules for source in _sources(rule)))
        for rule in rules:
            try:
                if context is None:
                    context = seen.of_draft(draft, fields)
                if not cel.compiled(rule.when).is_true(context):
                    continue
                done = [_act(batch, draft, rule, number, action, context) for number, action in enumerate(rule.actions)]
            except (cel.Failed, InvalidConfig, InvalidMessage) as error:
                failed(draft, rule, str(error))
                continue
            if any(done):  # the message has another content now
                context = None
            if draft.queue != queue or draft.ends is not None or not rule.go_on:
                break
        if draft.queue == queue:
            return


def _sources(rule: Rule) -> tuple[str, ...]:
    """All expressions of a rule."""
    more = [action.transform or (action.publish and action.publish.expression) for action in rule.actions]
    return (rule.when, *(source for source in more if source))


def failed(draft: Draft, rule: Rule, why: str) -> None:
    """The message goes where it was going. It says so itself, and the log does."""
    log.warning("rule %s cannot be applied to a message of queue %s: %s", rule.name, draft.queue, why)
    _add_headers(draft, {RULE_ERROR: f"{rule.name}: {why}"[:500]})


def _add_headers(draft: Draft, headers: dict[str, str]) -> None:
    draft.change(headers={**(draft.message.headers or {}), **headers})


def _hop(draft: Draft, rule: Rule) -> str | None:
    """The number of this hop as a header; None if the message has made too many, and is dead now."""
    hops = hops_of(draft.message.headers) + 1
    if hops > MOST_HOPS:
        draft.end_dead(ROUTING_LOOP, f"rules moved it {MOST_HOPS} times, the last was {rule.name}")
        return None
    return str(hops)


def _act(batch: Batch, draft: Draft, rule: Rule, number: int, action: Action, context: Any) -> bool:
    """Carry out one action; true if the message was changed."""
    if draft.ends is not None:
        return False
    if action.set is not None:
        draft.change(**_changes(action.set, draft, batch))
    elif action.transform is not None:
        draft.change(payload=cel.compiled(action.transform).value(context))
    elif action.route is not None:
        if action.route != draft.queue and (hop := _hop(draft, rule)) is not None:
            _add_headers(draft, {HOPS: hop})
            draft.queue = action.route
    elif action.copy is not None:
        _copy(batch, draft, rule, number, action.copy)
    elif action.escalate is not None:
        draft.change(priority=action.escalate.priority)
        if action.escalate.notify is not None:
            _copy(batch, draft, rule, number, action.escalate.notify)
    elif action.archive:
        draft.end_cancelled(f"archived by rule {rule.name}")
    elif action.publish is not None:
        new = action.publish
        payload = new.payload
        if new.expression is not None:
            payload = cel.compiled(new.expression).value(context)
        _copy(batch, draft, rule, number, new.queue, payload=payload, type=new.type, labels=new.labels)
    return action.set is not None or action.transform is not None or action.escalate is not None


def _copy(batch: Batch, draft: Draft, rule: Rule, number: int, queue: str, **fields: Any) -> None:
    hop = _hop(draft, rule)
    if hop is not None:
        headers = {**(draft.message.headers or {}), HOPS: hop}
        batch.copy(draft, queue, f"rule/{rule.name}/{number}", headers=headers, **fields)


def micros(value: float | str, field: str) -> int:
    """A duration as rules have it: seconds, or a text such as ``5m``."""
    seconds = seconds_of(value, field, InvalidConfig) if isinstance(value, str) else value
    return duration(seconds, field, error=InvalidConfig)


def _changes(asked: Changes, draft: Draft, batch: Batch) -> dict[str, Any]:
    """The fields that ``set`` changes, with their new values."""
    labels, headers = draft.message.labels, draft.message.headers
    fields: dict[str, Any] = {}
    if asked.labels:
        fields["labels"] = {**(labels or {}), **asked.labels}
    if asked.headers:
        fields["headers"] = {**(headers or {}), **asked.headers}
    if asked.priority is not None:
        fields["priority"] = asked.priority
    if asked.delay is not None:
        fields |= {"delay": timedelta(microseconds=micros(asked.delay, "delay")), "run_at": None}
    if asked.deadline is not None:
        fields["deadline"] = moment(batch.now() + micros(asked.deadline, "deadline"))
    return fields
