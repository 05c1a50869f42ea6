"""The publish step of reviews: a message with a review is held, and its first timer is stored with it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tampu.broker import timers
from tampu.broker.plain_batch import PlainBatch
from tampu.broker.policies.reviews import patterns
from tampu.broker.publish_steps import Batch, Draft
from tampu.broker.settings import Settings
from tampu.model.errors import InvalidMessage, PayloadTooLarge
from tampu.model.reviews import HOLD, ReviewPattern
from tampu.model.times import SECOND

FIRST = 1
"""The first review of a message. A task may ask for more."""
KEEP_US = 7 * 86_400 * SECOND
"""How often it is checked whether what is stored of a review can go."""


class ReviewStep:
    def wants(self, _queue: str, _settings: Settings) -> bool:
        return True

    def apply(self, batch: Batch, drafts: Sequence[Draft]) -> None:
        if batch.plain:
            return
        for draft in drafts:
            if draft.field("review") is not None and draft.ends is None:
                self._hold(batch, draft)

    def apply_plain(self, _batch: PlainBatch) -> bool:
        return True  # no message of a plain batch has a review

    def _hold(self, batch: Batch, draft: Draft) -> None:
        settings = batch.settings_of(draft.queue)
        if settings.broadcast:
            draft.refuse(
                "a message of a broadcast queue cannot be held", field="review",
                hint="publish it to another queue, with a rule for the trigger reviewed that copies it",
            )  # fmt: skip
        try:
            wanted, pattern = patterns.resolved(patterns.asked(draft.message.review), settings.patterns, draft.queue)
        except (InvalidMessage, PayloadTooLarge) as error:
            draft.refuse(error.args[0], field="review", hint=error.hint)
        draft.change(hold=HOLD, review=msgspec.to_builtins(wanted))
        batch.timers.append(timers.timer(draft.own_id(), FIRST, first_due(pattern)))


def first_due(pattern: ReviewPattern) -> int:
    """When there is something to do for a review: microseconds after it has begun."""
    return min(patterns.schedule(pattern).values(), default=KEEP_US)
