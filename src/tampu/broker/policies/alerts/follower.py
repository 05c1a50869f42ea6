"""The follower of alerts on failed attempts: it counts how attempts end. Without such an alert nothing is counted."""

from __future__ import annotations

from collections.abc import Sequence

from tampu.broker.followers import Effects
from tampu.model.journal import Transition
from tampu.model.message import State

FOLLOWER = "alerts"
_FAILED = frozenset({"nack", "reap", "reject"})


class AlertFollower:
    name = FOLLOWER

    def handle(self, transitions: Sequence[Transition], effects: Effects) -> None:
        for moved in transitions:
            failed = moved.verb in _FAILED
            if failed or (moved.verb == "ack" and moved.state is State.DONE):
                effects.count_attempt(moved.tenant, moved.queue, failed=failed)
