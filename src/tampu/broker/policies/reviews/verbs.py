"""The verbs of reviews: list, get, claim, comment, reassign, preview, and asking for one. `decide` has deciding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tampu.broker import publish, queue_cursor, timers, validate
from tampu.broker.core import Read, Steps
from tampu.broker.policies.reviews import patterns, stored, templates
from tampu.broker.policies.reviews.patterns import PATTERNS, PatternVerbs
from tampu.broker.policies.reviews.step import FIRST, first_due
from tampu.broker.policies.reviews.stored import Found, StoredReview
from tampu.engines import port
from tampu.model.errors import InvalidMessage, InvalidState, NotFound, TampuError, VersionConflict
from tampu.model.message import Lease, Message, NewMessage, State
from tampu.model.reviews import (
    HOLD,
    Asked,
    Comment,
    ReviewPage,
    ReviewPattern,
    ReviewPreview,
    ReviewRecord,
    Section,
    is_held_for_review,
)
from tampu.model.times import moment

TRIES = 20
_STEP = 200
MOST_LOOKED_AT = 10_000
"""Held messages that one list reads."""
_MOST_COMMENTS = 100
_MOST_COMMENT = 2_000
_MOST_NAME = 256
Change = Callable[[Found, int], StoredReview | None]
"""What becomes of a review that is open now; None: nothing changes."""


def reviewer(by: str | None, actor: str) -> str:
    """Who does it: the person that is named, or who uses the store."""
    return actor[:_MOST_NAME] if by is None else validate.text(by, "by", _MOST_NAME)


class ReviewVerbs(PatternVerbs):
    # -- reading

    def find_review(self, id: str) -> Steps[Found]:
        """A review with its message and pattern. Raises `NotFound`."""
        wanted = validate.id_text(id)
        message: Message | None = yield Read(lambda engine: engine.get(self.tenant, wanted))
        return (yield from self._found(wanted, message))

    def _found(self, id: str, message: Message | None) -> Steps[Found]:
        document: port.Document | None = yield Read(lambda engine: engine.document(stored.KIND, self.tenant, id))
        known = stored.read(document, message)
        if known is None:
            raise NotFound(f"message {id} has no review", field="id", hint="see tampu review list")
        pattern = yield from self._pattern(known.asked)
        return Found(id, message, known, 0 if document is None else document.version, pattern)

    def _pattern(self, wanted: Asked) -> Steps[ReviewPattern]:
        if wanted.inline is not None:
            return wanted.inline
        assert wanted.pattern is not None
        return (yield from self.get_definition(PATTERNS, wanted.pattern, wanted.version))

    def get_review(self, id: str) -> Steps[ReviewRecord]:
        """A review, with what the reviewer sees. Raises `NotFound`."""
        found = yield from self.find_review(id)
        return record_of(found, _sections(found))

    def list_reviews(
        self,
        *,
        role: str | None = None,
        assignee: str | None = None,
        queue: str | None = None,
        pattern: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Steps[ReviewPage]:
        """Open reviews: queue by queue, in each the oldest message first.

        ``role``: those that this role may decide; ``assignee``: of this person. A page may be short, because a call
        looks at a limited number of held messages; its ``cursor`` is where the next one goes on.
        """
        return (yield from self.open_reviews(role, assignee, queue, pattern, after, limit))

    def open_reviews(
        self,
        role: str | None,
        assignee: str | None,
        queue: str | None,
        pattern: str | None,
        after: str | None,
        limit: int,
        may: Callable[[str], bool] = lambda _queue: True,
    ) -> Steps[ReviewPage]:
        """`list_reviews` of the queues for which ``may`` is true."""
        validate.whole(limit, "limit", 1, 1000)
        if queue is not None:
            validate.name(queue, "queue")
        first, inner = queue_cursor.read(after, "reviews")
        found: list[ReviewRecord] = []
        looked_at = 0
        stats: list[port.QueueStats] = yield Read(lambda engine: engine.stats(self.tenant, queue))
        for name in sorted(one.queue for one in stats if one.counts.get(State.HELD) and may(one.queue)):
            if name < first:
                continue
            place: tuple[Any, ...] | None = (inner or None) if name == first else None
            while True:
                if len(found) >= limit or looked_at >= MOST_LOOKED_AT:
                    return ReviewPage(found, queue_cursor.write(name, place))
                page = yield from self._held(name, place, _STEP)
                chosen = yield from self._open_ones(page, lambda one: _is_wanted(one, role, assignee, pattern))
                if len(chosen) > limit - len(found):  # a cursor marks the end of a page
                    chosen = chosen[: limit - len(found)]
                    page = yield from self._held(name, place, chosen[-1][0] + 1)
                found += [record for _, record in chosen]
                looked_at += len(page.messages)
                if page.cursor is None:
                    break
                place = page.cursor
        return ReviewPage(found)

    def _held(self, queue: str, after: tuple[Any, ...] | None, limit: int) -> Steps[port.Page]:
        page: port.Page | None = yield Read(lambda engine: engine.page(self.tenant, queue, State.HELD, after, limit))
        return port.Page([], None) if page is None else page

    def _open_ones(self, page: port.Page, is_wanted: Callable[[Found], bool]) -> Steps[list[tuple[int, ReviewRecord]]]:
        """The open reviews of a page of held messages, each with its place in the page."""
        found = []
        for at, message in enumerate(page.messages):
            if message.body.review is None and not is_held_for_review(message.reason):
                continue
            try:
                one = yield from self._found(message.id, message)
            except NotFound:  # it has ended meanwhile
                continue
            if one.open and is_wanted(one):
                found.append((at, record_of(one)))
        return found

    def preview_review(
        self,
        pattern: str | dict[str, Any],
        payload: Any = None,
        *,
        queue: str = "preview",
        type: str | None = None,
        labels: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> Steps[ReviewPreview]:
        """What a reviewer would see of a message with this payload. Nothing is stored.

        ``pattern`` is the name of a pattern, or what a pattern would say.
        """
        wanted = patterns.asked(pattern)
        found = yield from self._pattern(wanted)
        asked = msgspec.structs.replace(wanted, parameters=parameters or wanted.parameters)
        patterns.resolved(asked, {found.name: found}, next((one for one in found.queues if "*" not in one), queue))
        settings = self.core.settings.get(self.tenant, validate.name(queue, "queue"))
        item = validate.item(queue, settings, NewMessage(payload, type, labels=labels, headers=headers))
        now: int = yield Read(lambda engine: engine.now())
        sample = Message("00000000-0000-0000-0000-000000000000", self.tenant, queue, State.HELD, item.body, 0, 1, now)
        known = Found(sample.id, sample, StoredReview(opened_us=now, asked=asked), 0, found)
        return ReviewPreview(sections=_sections(known), options=found.choices, fields=found.form)

    # -- changing

    def claim_review(self, id: str, *, by: str | None = None) -> Steps[ReviewRecord]:
        """This person works on it: nobody else can decide, until it is reassigned. Raises `InvalidState`."""
        person = reviewer(by, self.actor.name)

        def change(found: Found, _now: int) -> StoredReview | None:
            check_assignee(found, person)
            if found.stored.assignee == person:
                return None
            return msgspec.structs.replace(found.stored, assignee=person)

        return (yield from self._change_review(id, "claim", {"by": person}, change))

    def reassign_review(
        self, id: str, to: str | None = None, *, roles: Sequence[str] | None = None, by: str | None = None
    ) -> Steps[ReviewRecord]:
        """Another person decides; without ``to`` nobody in particular. ``roles`` replaces who may."""
        person = reviewer(by, self.actor.name)
        if to is not None:
            validate.text(to, "to", _MOST_NAME)
        wanted = None if roles is None else tuple(validate.name(role, "role") for role in roles)
        if wanted is not None and len(wanted) > len(set(wanted[:20])):
            raise InvalidMessage("name at most 20 different roles", field="roles")

        def change(found: Found, _now: int) -> StoredReview | None:
            if to is None and found.pattern.assignee is not None and wanted is None:
                raise InvalidMessage("name the person who decides instead", field="to")
            own = found.stored.roles if wanted is None else wanted
            return msgspec.structs.replace(found.stored, assignee=to, roles=own)

        return (yield from self._change_review(id, "reassign", {"by": person, "to": to, "roles": wanted}, change))

    def comment_review(self, id: str, text: str, *, by: str | None = None) -> Steps[ReviewRecord]:
        """Add a comment, which all who look at the review see."""
        person = reviewer(by, self.actor.name)
        validate.text(text, "text", _MOST_COMMENT)

        def change(found: Found, now: int) -> StoredReview | None:
            comments = found.stored.comments
            if len(comments) >= _MOST_COMMENTS:
                raise InvalidState(f"a review has at most {_MOST_COMMENTS} comments", hint="decide, or start a new one")
            made = Comment(person, moment(now), text)
            return msgspec.structs.replace(found.stored, comments=(*comments, made))

        return (yield from self._change_review(id, "comment", {"by": person, "text": text}, change))

    def _change_review(self, id: str, act: str, after: Any, change: Change) -> Steps[ReviewRecord]:
        for _ in range(TRIES):
            found = yield from self.find_review(id)
            check_open(found)
            now: int = yield Read(lambda engine: engine.now())
            changed = change(found, now)
            if changed is None:
                return record_of(found)
            call = stored.saving(self.tenant, found, changed)
            try:
                yield from self.recorded([call], f"review.{act}", found.id, None, after)
            except VersionConflict:
                continue
            return record_of(found._replace(stored=changed))
        raise VersionConflict(f"review {id} keeps changing", hint="try again")

    def ask_review(
        self, lease: Lease | str, review: Any, *, reason: str | None = None, id: str | None = None
    ) -> Steps[None]:
        """Give the message of a lease back, held until a person has decided. The attempt does not count.

        The decision comes with the next delivery, in ``message.review``. A receipt needs the ``id`` of its message.
        Raises `LeaseLost`; then nothing changed.
        """
        receipt, queue, name = asking(lease, id, reason)
        settings = self.core.settings.get(self.tenant, queue)
        wanted, pattern = patterns.resolved(patterns.asked(review), settings.patterns, queue)
        if not isinstance(lease, Lease):  # a receipt is of one message for ever: this shows of which
            (reply,) = yield port.Extend(self.tenant, [(queue, receipt, settings.lease_us)], [name])
            if isinstance(reply, TampuError):
                raise reply
        now: int = yield Read(lambda engine: engine.now())
        document: port.Document | None = yield Read(lambda engine: engine.document(stored.KIND, self.tenant, name))
        old = stored.read(document, None)
        made = StoredReview(
            opened_us=now, asked=wanted, round=FIRST + 1 if old is None else old.round + 1, reason=reason,
            hold=HOLD if old is None else f"{HOLD} {old.round + 1}", comments=() if old is None else old.comments,
        )  # fmt: skip
        held = port.SettleItem("release", queue, receipt, id=name, hold=made.hold)
        yield port.Together(
            self.tenant,
            [
                port.Settle(self.tenant, [held], strict=True),
                port.PutDocument(stored.KIND, self.tenant, name, msgspec.json.encode(made)),
                publish.timers_call(self.tenant, [timers.timer(name, made.round, first_due(pattern))]),
            ],
        )


def asking(lease: Lease | str, id: str | None, reason: str | None) -> tuple[str, str, str]:
    """(receipt, queue, id of the message)"""
    if reason is not None:
        validate.text(reason, "reason", 1000)
    if isinstance(lease, Lease):
        return lease.receipt, lease.queue, lease.id
    if not isinstance(lease, str) or not 0 < len(lease) <= 512 or "/" not in lease:
        raise InvalidMessage("pass the lease, or its receipt", field="lease")
    if id is None:
        raise InvalidMessage("pass the id of the message with its receipt", field="id")
    return lease, validate.name(lease.rpartition("/")[0], "receipt"), validate.id_text(id)


def check_open(found: Found) -> None:
    if found.open:
        return
    decision = found.stored.decision
    if decision is not None:
        raise InvalidState(f"{decision.by} has decided already: {decision.option}", hint="see tampu review show")
    raise InvalidState("the message does not wait for a decision any more", hint="see tampu show")


def check_assignee(found: Found, person: str) -> None:
    """Raise if somebody else works on it."""
    assignee = found.stored.assignee or found.pattern.assignee
    if assignee not in (None, person):
        raise InvalidState(f"{assignee} works on this review", hint="reassign it first")


def _is_wanted(found: Found, role: str | None, assignee: str | None, pattern: str | None) -> bool:
    return (
        (role is None or not found.roles or role in found.roles)
        and (assignee is None or (found.stored.assignee or found.pattern.assignee) == assignee)
        and (pattern is None or found.stored.asked.pattern == pattern)
    )


def record_of(found: Found, sections: tuple[Section, ...] = ()) -> ReviewRecord:
    return stored.record(found, patterns.schedule(found.pattern).get("deadline"), sections)


def _sections(found: Found) -> tuple[Section, ...]:
    if found.message is None:
        return ()
    values = templates.values_of(found.message, {**found.pattern.parameters, **found.stored.asked.parameters})
    return tuple(
        Section(templates.rendered(one.text, values), one.title)
        for one in found.pattern.context
        if isinstance(one, Section)
    )
