"""The publish step of rules with the trigger ``published``: what they do happens in the unit of the publish."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from tampu.broker.plain_batch import Pairs, PlainBatch
from tampu.broker.policies import cel
from tampu.broker.policies.conditions import View
from tampu.broker.policies.rules.names import HOPS, MOST_HOPS, hops_of
from tampu.broker.policies.rules.program import Program, program
from tampu.broker.policies.webhooks import deliveries
from tampu.broker.publish_steps import Batch, Draft
from tampu.broker.settings import Settings
from tampu.model.definitions import Action, Changes, Rule, Webhook
from tampu.model.errors import InvalidConfig, InvalidMessage
from tampu.model.reasons import ROUTING_LOOP
from tampu.model.times import duration, moment
from tampu.model.values import NOT_ENCODED, encode

log = logging.getLogger("tampu")
RULE_ERROR = "tampu-rule-error"
"""The header of a message that a rule could not be applied to: the name of the rule, and why."""


class RuleStep:
    def wants(self, _queue: str, settings: Settings) -> bool:
        return bool(settings.rules)

    def apply(self, batch: Batch, drafts: Sequence[Draft]) -> None:
        waiting = list(drafts)
        for draft in waiting:  # grows in the loop: copies go through the rules of their queues
            if draft.ends is None:
                known = len(batch.copies)
                _apply_all(batch, draft)
                waiting += batch.copies[known:]

    def apply_plain(self, batch: PlainBatch) -> bool:
        found = program(batch.settings, batch.type).first_matches(batch)
        if found is None:
            return False
        rules = {id(rule): rule for rule in found if rule is not None}
        if not all(map(_adds_pairs_only, rules.values())):
            return False
        if rules:
            (pairs,) = {id(pairs): pairs for pairs in batch.pairs}.values()  # so far all have the same
            added = {name: _with_added(pairs, rule) for name, rule in rules.items()}
            batch.pairs = [added.get(id(rule), pairs) for rule in found]
        return True


def _adds_pairs_only(rule: Rule) -> bool:
    """True if all that the rule does is to add headers and labels, and no rule comes after it."""
    asked = [action.set for action in rule.actions]
    return not rule.go_on and all(
        one is not None and one.priority is None and one.delay is None and one.deadline is None for one in asked
    )


def _with_added(pairs: Pairs, rule: Rule) -> Pairs:
    headers, labels = pairs
    for action in rule.actions:
        if action.set is not None and action.set.headers:
            headers = {**(headers or {}), **action.set.headers}
        if action.set is not None and action.set.labels:
            labels = {**(labels or {}), **action.set.labels}
    return headers, labels


def _apply_all(batch: Batch, draft: Draft) -> None:
    """Apply the rules of the queue, and again those of the queue to which one routes the message."""
    while draft.ends is None:
        queue = draft.queue
        _apply(batch, draft, program(batch.settings_of(queue), draft.field("type")))
        if draft.queue == queue:
            return


def _apply(batch: Batch, draft: Draft, rules: Program) -> None:
    """Apply rules in order, until one matches that is the last."""
    queue, view = draft.queue, View(draft, rules.fields)
    for find, _ in rules.entries:
        for rule, matched in find(view):
            try:
                if not matched and not view.is_true(cel.compiled(rule.when)):
                    continue
                if len(rule.actions) > 1 and any(action.expression for action in rule.actions):
                    _ = view.context  # now: expressions see the message as it was before the rule
                for number, action in enumerate(rule.actions):
                    _act(batch, draft, rule, number, action, view)
            except (cel.Failed, InvalidConfig, InvalidMessage) as error:
                failed(draft, rule, str(error))
            else:
                if draft.ends is not None or not rule.go_on or draft.queue != queue:
                    return
            view = View(draft, rules.fields)  # it may have another content now


def failed(draft: Draft, rule: Rule, why: str) -> None:
    """The message goes where it was going. It says so itself, and the log does."""
    log.warning("rule %s cannot be applied to a message of queue %s: %s", rule.name, draft.queue, why)
    draft.add_headers({RULE_ERROR: f"{rule.name}: {why}"[:500]})


def _hop(draft: Draft, rule: Rule) -> str | None:
    """The number of this hop as a header; None if the message has made too many, and is dead now."""
    hops = hops_of(draft.field("headers")) + 1
    if hops > MOST_HOPS:
        draft.end_dead(ROUTING_LOOP, f"rules moved it {MOST_HOPS} times, the last was {rule.name}")
        return None
    return str(hops)


def _act(batch: Batch, draft: Draft, rule: Rule, number: int, action: Action, view: View) -> None:
    """Carry out one action."""
    if draft.ends is not None:
        return
    if action.set is not None:
        draft.change(**_changes(action.set, draft, batch))
    elif action.transform is not None:
        draft.change(**_encoded(cel.compiled(action.transform).value(view.context)))
    elif action.route is not None:
        if action.route != draft.queue and (hop := _hop(draft, rule)) is not None:
            draft.add_headers({HOPS: hop})
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
        payload = new.payload if new.expression is None else cel.compiled(new.expression).value(view.context)
        _copy(batch, draft, rule, number, new.queue, **_encoded(payload), type=new.type, labels=new.labels)
    elif action.webhook is not None:
        _call(batch, draft, rule, number, action.webhook)


def _encoded(payload: Any) -> dict[str, Any]:
    """A new payload as the fields of a message: rules of the next queue read it."""
    try:
        raw, content_type = encode(payload)
    except NOT_ENCODED as error:
        raise cel.Failed(f"the new payload cannot be encoded: {error}"[:300]) from None
    return {"payload": raw, "content_type": content_type}


def _copy(batch: Batch, draft: Draft, rule: Rule, number: int, queue: str, **fields: Any) -> None:
    hop = _hop(draft, rule)
    if hop is not None:
        headers = {**(draft.field("headers") or {}), HOPS: hop}
        batch.copy(draft, queue, f"rule/{rule.name}/{number}", headers=headers, **fields)


def _call(batch: Batch, draft: Draft, rule: Rule, number: int, webhook: Webhook) -> None:
    draft.identify()
    new = draft.message
    shown = {
        "id": new.id, "queue": draft.queue, "type": new.type, "payload": draft.payload, "labels": new.labels or {},
        "headers": new.headers or {}, "priority": new.priority, "correlation_id": new.correlation_id,
    }  # fmt: skip
    fields = deliveries.fields_of(webhook, {"rule": rule.name, "trigger": rule.trigger, "message": shown})
    fields |= _encoded(fields["payload"])
    batch.copy(draft, deliveries.QUEUE, f"rule/{rule.name}/{number}", **_OWN, **fields)


_OWN: dict[str, Any] = dict.fromkeys(
    ("delay", "run_at", "ttl", "deadline", "hold", "labels", "headers", "max_attempts", "source", "parent_id")
) | {"priority": 0}
"""What the delivery of a webhook does not have from its message."""


def micros(value: float | str, field: str) -> int:
    """A duration as rules have it: seconds, or a text such as ``5m``."""
    return duration(value, field, error=InvalidConfig)


def _changes(asked: Changes, draft: Draft, batch: Batch) -> dict[str, Any]:
    """The fields that ``set`` changes, with their new values."""
    labels, headers = draft.field("labels"), draft.field("headers")
    fields: dict[str, Any] = {}
    if asked.labels:
        fields["labels"] = {**(labels or {}), **asked.labels}
    if asked.headers:
        fields["headers"] = {**(headers or {}), **asked.headers}
    if asked.priority is not None and asked.priority != draft.field("priority"):
        fields["priority"] = asked.priority
    if asked.delay is not None:
        fields |= {"delay": timedelta(microseconds=micros(asked.delay, "delay")), "run_at": None}
    if asked.deadline is not None:
        fields["deadline"] = moment(batch.now() + micros(asked.deadline, "deadline"))
    return fields
