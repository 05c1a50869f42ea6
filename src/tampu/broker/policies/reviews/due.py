"""What is due for a review: a reminder, an escalation, the deadline, or removing what is stored of it.

Each step is stored with the version of the review's document and with the next timer, as one unit; the timer that led
to it is settled after that. So a step is taken once, and the next timer is there, whenever a process dies.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from tampu.broker import publish, timers
from tampu.broker.core import PublishSet, Read, Steps
from tampu.broker.policies.reviews import patterns, stored
from tampu.broker.policies.reviews.decide import DecideVerbs
from tampu.broker.policies.reviews.patterns import option_of
from tampu.broker.policies.reviews.step import KEEP_US
from tampu.broker.policies.reviews.stored import Found, StoredReview
from tampu.broker.publish import PublishVerbs
from tampu.broker.publish_steps import derived_id
from tampu.engines import port
from tampu.model.errors import InvalidMessage, NotFound, PayloadTooLarge, QueueClosed, QueueFull, VersionConflict
from tampu.model.message import NewMessage, State
from tampu.model.reviews import Decision
from tampu.model.times import moment

log = logging.getLogger("tampu.maintenance")
_TRIES = 20
_NOT_TAKEN = (QueueFull, QueueClosed, InvalidMessage, PayloadTooLarge)
"""Why a queue may not take a message about a review. The review goes on."""


class DueVerbs(PublishVerbs, DecideVerbs):
    def handle_timer(self, id: str) -> Steps[None]:
        """Do what is due for the review of this message."""
        for _ in range(_TRIES):
            try:
                found = yield from self.find_review(id)
            except NotFound:
                return
            try:
                yield from self._handle(found)
            except VersionConflict:
                continue
            return
        raise VersionConflict(f"review {id} keeps changing", hint="it is tried again")

    def _handle(self, found: Found) -> Steps[None]:
        message, review = found.message, found.stored
        if message is None:
            yield port.DeleteDocument(stored.KIND, self.tenant, found.id)
            return
        now: int = yield Read(lambda engine: engine.now())
        if not found.open:
            if review.decision is not None and message.state is State.HELD:
                yield from self.carry_out(found.id, review)
            if found.version:
                yield publish.timers_call(self.tenant, [_next(found, review, now)])
            return
        due = [name for name, after in patterns.schedule(found.pattern).items() if review.opened_us + after <= now]
        if "deadline" in due:
            yield from self._time_out(found, now)
            return
        changed = review
        happened = None
        if "remind" in due and not review.reminded:
            changed, happened = msgspec.structs.replace(changed, reminded=True), "remind"
        if "escalate" in due and not review.escalated:
            changed, happened = _escalated(found, changed), "escalate"
        timer = publish.timers_call(self.tenant, [_next(found, changed, now)])
        if happened is None:
            yield timer
            return
        after = {"roles": changed.roles, "assignee": changed.assignee}
        calls = [stored.saving(self.tenant, found, changed), timer]
        notices = self._notification(found._replace(stored=changed), happened)
        try:
            yield from self.recorded([*calls, *notices], f"review.{happened}", found.id, None, after)
        except QueueFull as error:
            log.warning("nobody is notified of review %s: %s", found.id, error)
            yield from self.recorded(calls, f"review.{happened}", found.id, None, after)

    def _time_out(self, found: Found, now: int) -> Steps[None]:
        option = option_of(found.pattern, found.pattern.on_timeout)
        made = Decision(option.name, option.outcome, self.actor.name, moment(now), "the deadline has passed")
        changed = msgspec.structs.replace(found.stored, decision=made)
        timer = publish.timers_call(self.tenant, [_next(found, changed, now)])
        notices = self._notification(found._replace(stored=changed), "timeout")
        try:
            yield from self.close_review(found, changed, None, [timer, *notices])
        except QueueFull as error:
            log.warning("nobody is notified of review %s: %s", found.id, error)
            yield from self.close_review(found, changed, None, [timer])

    def _notification(self, found: Found, event: str) -> list[port.Publish]:
        """The calls that tell the pattern's queue of it; none if it has no queue, or that takes nothing."""
        queue = found.pattern.notify
        if queue is None or found.message is None:
            return []
        content = {
            "event": event, "id": found.id, "queue": found.message.queue, "pattern": found.stored.asked.pattern,
            "roles": found.roles, "assignee": found.stored.assignee or found.pattern.assignee,
        }  # fmt: skip
        new = NewMessage(
            content, type=f"review.{event}", id=derived_id(found.id, f"review/{found.stored.round}/{event}"),
            correlation_id=found.message.correlation_id or found.id, causation_id=found.id,
        )  # fmt: skip
        try:
            step: Any = self.publishing(queue, [new])
        except _NOT_TAKEN as error:
            log.warning("nobody is notified of review %s: %s", found.id, error)
            return []
        calls = step.calls if isinstance(step, PublishSet) else [step]
        return [msgspec.structs.replace(call, simple=False) for call in calls]


def _escalated(found: Found, review: StoredReview) -> StoredReview:
    """Others may decide now. Who worked on it, does so no more."""
    to = found.pattern.escalate
    assert to is not None
    roles = to.roles or review.roles
    return msgspec.structs.replace(review, escalated=True, assignee=to.assignee, roles=roles)


def _next(found: Found, review: StoredReview, now: int) -> port.Item:
    """The timer for what is due next."""
    waits = [] if review.decision is not None else list(patterns.schedule(found.pattern).values())
    kept = ((now - review.opened_us) // KEEP_US + 1) * KEEP_US
    after = min([wait for wait in waits if review.opened_us + wait > now] + [kept])
    return timers.timer(found.id, review.round, after, run_us=review.opened_us + after)
