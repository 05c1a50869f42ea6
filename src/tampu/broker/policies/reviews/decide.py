"""Deciding: one decision is stored, and the message continues or is dead.

The document of the review is written with its version, so of several decisions at once one is stored. Where a unit is
one commit, the message is freed or rejected in it. On engines whose units become visible part by part, a unit cannot
hold both: a version of a document and the state of a message might each refuse it. There the decision comes first, with
a timer; then the message is changed. If the process dies in between, the timer makes up for it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tampu.broker import publish, timers, validate
from tampu.broker.core import Read, Steps
from tampu.broker.policies.reviews import forms, stored
from tampu.broker.policies.reviews.patterns import option_of
from tampu.broker.policies.reviews.stored import Found, StoredReview
from tampu.broker.policies.reviews.verbs import TRIES, ReviewVerbs, check_assignee, check_open, record_of, reviewer
from tampu.broker.policies.schemas.step import SchemaStep
from tampu.broker.publish_steps import Batch, Draft
from tampu.engines import port
from tampu.model.errors import InvalidMessage, InvalidState, TampuError, VersionConflict
from tampu.model.message import Body, Message
from tampu.model.reasons import REFUSED
from tampu.model.reviews import Decision, MessageReview, ReviewOption, ReviewRecord
from tampu.model.times import SECOND, moment
from tampu.model.values import pack_body

_REPAIR_US = 2 * SECOND
"""After this time it is checked whether the message was changed."""
_UNKNOWN = -1


class DecideVerbs(ReviewVerbs):
    def decide_review(
        self,
        id: str,
        option: str,
        *,
        by: str | None = None,
        reason: str | None = None,
        fields: dict[str, Any] | None = None,
        payload: Any = None,
        role: str | None = None,
    ) -> Steps[ReviewRecord]:
        """Decide: an option that approves lets the message continue with the decision in it, one that refuses ends it.

        ``fields`` are the values of the form. ``payload`` replaces that of the message; it must match the schemas of
        the queue. With ``role``, the person acts in it. Of several decisions at once one is taken; the others get
        `InvalidState`. The same decision of the same person again changes nothing.
        """
        person = reviewer(by, self.actor.name)
        if reason is not None:
            validate.text(reason, "reason", 1000)
        for _ in range(TRIES):
            found = yield from self.find_review(id)
            now: int = yield Read(lambda engine: engine.now())
            chosen = option_of(found.pattern, option)
            values = forms.check_values(found.pattern.form, fields, complete=chosen.outcome == "approve")
            made = Decision(chosen.name, chosen.outcome, person, moment(now), reason, values)
            if _has_decided(found, made):
                return record_of(found)
            check_open(found)
            check_assignee(found, person)
            _check_role(found, role)
            if any(vote.by == person for vote in found.stored.votes):
                raise InvalidState(f"{person} has decided already", hint="other persons must approve too")
            try:
                return (yield from self._decided(found, made, chosen, payload))
            except VersionConflict:
                continue
        raise VersionConflict(f"review {id} keeps changing", hint="try again")

    def _decided(self, found: Found, made: Decision, chosen: ReviewOption, payload: Any) -> Steps[ReviewRecord]:
        assert found.message is not None
        votes = (*found.stored.votes, made)
        if payload is not None:
            self._check_edit(found, chosen)
        agreeing = sum(vote.option == made.option for vote in votes)
        if chosen.outcome == "approve" and agreeing < found.pattern.approvals:
            changed = msgspec.structs.replace(found.stored, votes=votes)
            call = stored.saving(self.tenant, found, changed)
            yield from self.recorded([call], "review.approve", found.id, None, made)
            return record_of(found._replace(stored=changed))
        changed = msgspec.structs.replace(found.stored, votes=votes, decision=made)
        yield from self.close_review(found, changed, payload)
        return record_of(found._replace(stored=changed))

    @staticmethod
    def _check_edit(found: Found, chosen: ReviewOption) -> None:
        if chosen.outcome != "approve":
            raise InvalidMessage("a refused message keeps its payload", field="payload")
        if found.pattern.approvals > 1:
            raise InvalidMessage(
                "the payload cannot be changed where several persons approve", field="payload",
                hint="refuse it, and publish another message",
            )  # fmt: skip

    def close_review(
        self, found: Found, changed: StoredReview, payload: Any = None, more: list[Any] | None = None
    ) -> Steps[None]:
        """Store a decision, and let the message continue or end. ``more`` are further calls of the unit."""
        message, decision = found.message, changed.decision
        assert message is not None
        assert decision is not None
        body = None if decision.outcome == "refuse" else self._new_body(message, changed, payload)
        packed = None if body is None else pack_body(body)
        calls = list(more or ())
        if "atomic:isolated" in self.core.engine.capabilities:
            calls += [stored.saving(self.tenant, found, changed), _change_of(self.tenant, found.id, changed, packed)]
            yield from self.recorded(calls, "review.decide", found.id, None, decision)
            return
        kept = msgspec.structs.replace(changed, body=packed)
        timer = timers.timer(found.id, changed.round, _UNKNOWN, run_us=(yield Read(_soon)))
        calls += [stored.saving(self.tenant, found, kept), publish.timers_call(self.tenant, [timer])]
        yield from self.recorded(calls, "review.decide", found.id, None, decision)
        yield from self.carry_out(found.id, kept)

    def carry_out(self, id: str, decided: StoredReview) -> Steps[None]:
        """Change the message as it was decided. It changes nothing if that was done before, and the message is held
        for another review now."""
        change = _change_of(self.tenant, id, decided, decided.body)
        outcomes = yield msgspec.structs.replace(change, held_for=decided.hold)
        error: TampuError | None = outcomes[0].error
        if error is not None and not isinstance(error, InvalidState):
            raise error

    def _new_body(self, message: Message, changed: StoredReview, payload: Any) -> Body:
        """The body of the message that continues, with the decision, and perhaps with another payload."""
        wanted = changed.asked
        review = MessageReview(wanted.pattern, wanted.version, wanted.parameters, decision=changed.decision)
        body = message.body
        if payload is not None:
            body = self._edited(message, payload)
        return msgspec.structs.replace(body, review=msgspec.json.encode(review).decode())

    def _edited(self, message: Message, payload: Any) -> Body:
        """The body with this payload. Raises `InvalidMessage` if a schema of the queue refuses it."""

        def settings_of(queue: str) -> Any:
            return self.core.settings.get(self.tenant, queue)

        settings = settings_of(message.queue)
        plain = msgspec.structs.replace(message.body, review=None, hold=None)
        new = validate.from_body(plain, payload=payload, content_type=None)
        item = validate.item(message.queue, settings, new)
        draft = Draft(message.queue, validate.from_body(item.body), item, None)
        if settings.schemas:
            SchemaStep().apply(Batch(self.tenant, [draft], settings_of), [draft])
            if draft.ends is not None:
                raise InvalidMessage(str(draft.ends.error), field="payload")
        made = validate.item(message.queue, settings, draft.message).body
        return msgspec.structs.replace(message.body, payload=made.payload, content_type=made.content_type,
                                       headers=made.headers)  # fmt: skip


def _soon(engine: port.Engine) -> int:
    return engine.now() + _REPAIR_US


def _change_of(tenant: str, id: str, decided: StoredReview, body: bytes | None) -> port.Free | port.Cancel:
    """The call that lets a message continue, or ends it."""
    decision = decided.decision
    assert decision is not None
    if decision.outcome == "approve":
        return port.Free(tenant, [id], [body], actor=decision.by)
    error = f"{decision.option} by {decision.by}" + (f": {decision.reason}" if decision.reason else "")
    return port.Cancel(tenant, [id], REFUSED, error, actor=decision.by)


def _has_decided(found: Found, made: Decision) -> bool:
    """True if this person has made the same decision before: a call that is repeated."""
    same = [one for one in (*found.stored.votes, found.stored.decision) if one is not None and one.by == made.by]
    return any(msgspec.structs.replace(one, at=made.at) == made for one in same)


def _check_role(found: Found, role: str | None) -> None:
    if role is not None and found.roles and role not in found.roles:
        raise InvalidState(
            f"the role {role:.100} may not decide this", hint=f"roles that may: {', '.join(found.roles)}"
        )
