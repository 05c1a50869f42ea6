"""The publish step of broadcast queues: each subscription whose filter is true gets a copy, in the unit of the publish.

The message itself is stored as done. It shows what was published, for as long as the queue keeps ended messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tampu.broker.policies import cel
from tampu.broker.policies.rules import seen
from tampu.broker.publish_steps import Batch, Draft
from tampu.broker.settings import Settings
from tampu.model.errors import InvalidConfig

BROADCAST = "broadcast"


class BroadcastStep:
    def wants(self, _queue: str, settings: Settings) -> bool:
        return settings.broadcast

    def apply(self, batch: Batch, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            if draft.ends is None:
                self._send(batch, draft)

    def _send(self, batch: Batch, draft: Draft) -> None:
        context: Any = None
        for subscription in batch.settings_of(draft.queue).subscriptions:
            if subscription.filter is not None:
                try:
                    context = context or seen.of_draft(draft)
                    if not cel.compiled(subscription.filter).is_true(context):
                        continue
                except (cel.Failed, InvalidConfig):  # no value for this message: it is not what was asked for
                    continue
            batch.copy(draft, subscription.own_queue, f"subscription/{subscription.subscriber}", key=draft.message.key)
        draft.end_done(BROADCAST)
