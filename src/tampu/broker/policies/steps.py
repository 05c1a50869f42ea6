"""The publish steps of tampu's own policies, in the order they run. `tampu.broker.publish` imports this."""

from __future__ import annotations

from tampu.broker.policies.reviews.step import ReviewStep
from tampu.broker.policies.rules.step import RuleStep
from tampu.broker.policies.schemas.step import SchemaStep
from tampu.broker.policies.subscriptions.step import BroadcastStep
from tampu.broker.publish_steps import STEPS

STEPS.extend([SchemaStep(), RuleStep(), ReviewStep(), BroadcastStep()])
