"""Followers of tampu's own policies. One works when somebody uses its policy: then it has a position in the store."""

from __future__ import annotations

from tampu.broker.dead.follower import DeadLetterFollower
from tampu.broker.followers import Handler
from tampu.broker.policies.alerts.follower import AlertFollower
from tampu.broker.policies.flows.follower import FlowFollower
from tampu.broker.policies.rules.follower import RuleFollower

OWN: tuple[Handler, ...] = (RuleFollower(), AlertFollower(), DeadLetterFollower(), FlowFollower())
