"""The publish step of broadcast queues: each subscription whose filter is true gets a copy, in the unit of the publish.

The message itself is stored as done. It shows what was published, for as long as the queue keeps ended messages.

Messages that nobody can publish again, because they have no id and no key, are stored for each subscription as one
plain batch. Others are copied one by one, under ids or keys that derive from theirs. A plain message that comes alone
gets a correlation id, so that a trace shows its copies; in a batch that would cost more than all else.
"""

from __future__ import annotations

from collections.abc import Sequence

from tampu.broker.plain_batch import PlainBatch
from tampu.broker.policies import cel, conditions
from tampu.broker.policies.conditions import View
from tampu.broker.policies.subscriptions.names import reason
from tampu.broker.publish_steps import Batch, Draft
from tampu.broker.settings import Settings
from tampu.engines.port import Ending
from tampu.model.definitions import Subscription
from tampu.model.errors import InvalidConfig
from tampu.model.message import State


class BroadcastStep:
    def wants(self, _queue: str, settings: Settings) -> bool:
        return settings.broadcast

    def apply(self, batch: Batch, drafts: Sequence[Draft]) -> None:
        by_queue: dict[str, list[Draft]] = {}
        for draft in drafts:
            if draft.ends is None:
                by_queue.setdefault(draft.queue, []).append(draft)
        for queue, sent in by_queue.items():
            views = [View(draft) for draft in sent]
            plain = batch.plain and all(draft.has_new_body_only for draft in sent)
            if plain and len(sent) == 1:
                sent[0].begin_story()
            for subscription in batch.settings_of(queue).subscriptions:
                chosen = sent if subscription.filter is None else _filtered(subscription, sent, views)
                if chosen:
                    _send(batch, subscription, chosen, plain=plain)
            why = reason(batch.settings_of(queue).subscriptions)
            for draft in sent:
                draft.end_done(why)

    def apply_plain(self, batch: PlainBatch) -> bool:
        if len(batch.raws) == 1:  # it gets a story
            return False
        subscriptions = batch.settings.subscriptions
        copies: list[tuple[str, Sequence[int] | None]] = []
        for subscription in subscriptions:
            queue = subscription.own_queue
            chosen: list[int] | None = None
            settings = batch.settings_of(queue)
            if not settings.simple or settings.max_payload < batch.settings.max_payload:
                return False
            if subscription.filter is not None:
                comparisons = conditions.parse(subscription.filter)
                wanted = None if comparisons is None else conditions.column_test(comparisons, batch)
                if wanted is None:
                    return False
                chosen = [at for at, yes in enumerate(wanted) if yes]
            if chosen is None or chosen:
                copies.append((queue, chosen))
        batch.copies = copies
        batch.ends = Ending(State.DONE, reason(subscriptions))
        return True


def _filtered(subscription: Subscription, drafts: Sequence[Draft], views: Sequence[View]) -> Sequence[Draft]:
    expression = cel.compiled(subscription.filter or "")
    chosen = []
    for draft, view in zip(drafts, views, strict=True):
        try:
            if view.is_true(expression):
                chosen.append(draft)
        except (cel.Failed, InvalidConfig):  # no value for this message: it is not what was asked for
            continue
    return chosen


def _send(batch: Batch, subscription: Subscription, drafts: Sequence[Draft], *, plain: bool) -> None:
    queue = subscription.own_queue
    settings = batch.settings_of(queue)
    if plain and settings.simple and settings.max_payload >= batch.settings_of(subscription.queue).max_payload:
        batch.spread(queue, drafts)
        return
    for draft in drafts:
        batch.copy(draft, queue, f"subscription/{subscription.subscriber}", key=draft.message.key)
