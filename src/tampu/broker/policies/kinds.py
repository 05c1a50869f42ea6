"""All kinds of definitions. A new kind is a line here; the server and the client then handle it like the others."""

from __future__ import annotations

from typing import Any

from tampu.broker.policies.alerts.verbs import ALERTS, AlertVerbs
from tampu.broker.policies.definitions import Kind
from tampu.broker.policies.flows.verbs import FlowVerbs
from tampu.broker.policies.holds.verbs import HOLDS, HoldVerbs
from tampu.broker.policies.reviews.decide import DecideVerbs
from tampu.broker.policies.reviews.patterns import PATTERNS
from tampu.broker.policies.rules.verbs import RULES, RuleVerbs
from tampu.broker.policies.schemas.verbs import SCHEMAS, SchemaVerbs
from tampu.broker.policies.subscriptions.verbs import SUBSCRIPTIONS, SubscriptionVerbs
from tampu.broker.policies.webhooks.verbs import WebhookVerbs

KINDS: tuple[Kind[Any], ...] = (SCHEMAS, RULES, SUBSCRIPTIONS, ALERTS, HOLDS, PATTERNS)


class PolicyVerbs(
    SchemaVerbs, RuleVerbs, SubscriptionVerbs, AlertVerbs, WebhookVerbs, HoldVerbs, DecideVerbs, FlowVerbs
):
    """The verbs of all policies."""
