"""The verbs of schedules: put, look, pause, resume, delete, fire now. Keepers fire the ticks (firing.py)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.core import Read, Steps
from tampu.broker.schedules import stored, ticks
from tampu.broker.schedules.stored import StoredSchedule
from tampu.broker.schedules.ticks import Timing
from tampu.broker.verbs import Verbs
from tampu.engines import port
from tampu.model.errors import InvalidMessage, NotFound, VersionConflict
from tampu.model.message import Message, NewMessage
from tampu.model.schedule import Schedule
from tampu.model.times import Duration, duration, instant

_TRIES = 20


class Terms(msgspec.Struct, frozen=True):
    """What a user asks of a schedule, checked; ``paused`` None leaves it as it is."""

    queue: str
    item: port.Item
    message: NewMessage
    cron: str | None
    every_us: int | None
    tz: str
    start_us: int | None
    end_us: int | None
    limit: int | None
    jitter_us: int
    missed: str
    paused: bool | None

    def timing(self, anchor_us: int) -> Timing:
        anchor = anchor_us if self.start_us is None else self.start_us
        return Timing(
            self.cron,
            self.every_us,
            self.tz,
            0 if self.every_us is None else anchor,
            self.start_us,
            self.end_us,
        )


class ScheduleVerbs(Verbs):
    def put_schedule(
        self,
        name: str,
        *,
        queue: str,
        payload: Any = None,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = "UTC",
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int | None = None,
        jitter: Duration = 0,
        missed: str = "once",
        paused: bool | None = None,
        type: str | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        ttl: Duration | None = None,
        deadline: datetime | None = None,
        key: str | None = None,
        labels: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        max_attempts: int | None = None,
        correlation_id: str | None = None,
        causation_id: str | None = None,
        parent_id: str | None = None,
        group: str | None = None,
        source: str | None = None,
        content_type: str | None = None,
        hold: str | None = None,
    ) -> Steps[Schedule]:
        """Publish a message to ``queue`` by ``cron`` (in the zone ``tz``) or ``every`` so often. Made, or changed.

        The first tick of an interval comes one interval from now, or at ``start``. Putting the same again changes
        nothing; as long as the times stay the same, what else is changed loses no tick. ``missed`` says what becomes
        of ticks nobody was there for: ``skip`` them, fire the newest ``once``, or the newest n by ``all(n)``.
        ``key`` lets a tick replace the message of the tick before when that still waits. The rest is as in `publish`.
        """
        new = NewMessage(
            payload, type, priority, delay, None, ttl, deadline, key, None, labels, headers, max_attempts,
            correlation_id, causation_id, parent_id, group, source, content_type, hold,
        )  # fmt: skip
        terms = self.terms(name, queue, new, cron, every, tz, start, end, limit, jitter, missed, paused)
        return (yield from self.put_terms(name, terms))

    def terms(
        self,
        name: str,
        queue: str,
        new: NewMessage,
        cron: str | None,
        every: Duration | None,
        tz: str,
        start: datetime | None,
        end: datetime | None,
        limit: int | None,
        jitter: Duration,
        missed: str,
        paused: bool | None,
    ) -> Terms:
        """What was asked for, if it can be done."""
        validate.name(name, "schedule")
        for field in stored.REFUSED:
            if getattr(new, field) is not None:
                raise InvalidMessage(f"a schedule gives its messages their {field}", field=field)
        item = validate.item(queue, self._settings(queue), new)
        if new.headers is not None and len(new.headers) > stored.MOST_HEADERS:
            raise InvalidMessage(f"a schedule may have {stored.MOST_HEADERS} headers", field="headers")
        if (cron is None) == (every is None):
            raise InvalidMessage("give cron or every, and not both", field="cron", hint="such as cron='*/5 * * * *'")
        ticks.checked_zone(tz)
        if every is not None and tz != "UTC":
            raise InvalidMessage("an interval has no time zone", field="tz", hint="leave tz out, or use cron")
        every_us = None if every is None else duration(every, "every")
        if every_us is not None and every_us < ticks.SHORTEST_US:
            raise InvalidMessage("every must be at least a second", field="every")
        start_us = None if start is None else instant(start, "start")
        end_us = None if end is None else instant(end, "end")
        if start_us is not None and end_us is not None and end_us < start_us:
            raise InvalidMessage("end is before start", field="end")
        if cron is not None:
            cron = ticks.checked_cron(cron, tz, 0)
        return Terms(
            queue,
            item,
            new,
            cron,
            every_us,
            tz,
            start_us,
            end_us,
            None if limit is None else validate.whole(limit, "limit", 1, 10**15),
            duration(jitter, "jitter"),
            ticks.checked_missed(missed),
            _flag(paused, "paused"),
        )

    def put_terms(self, name: str, terms: Terms) -> Steps[Schedule]:
        yield from self._register()
        for _ in range(_TRIES):
            document: port.Document | None = yield self._look(name)
            now: int = yield Read(lambda engine: engine.now())
            old = None if document is None else stored.read(document)
            new = _changed(old, terms, now)
            if new == old:
                return stored.view(self.tenant, name, new)
            try:
                yield stored.writing(self.tenant, name, new, document.version if document else 0)
            except VersionConflict:
                continue
            return self._stored(name, new)
        raise _restless(name)

    def _register(self) -> Steps[None]:
        """Let keepers know that this tenant has schedules."""
        kind, place = stored.TENANTS
        if (yield Read(lambda engine: engine.document(kind, place, self.tenant))) is None:
            yield port.PutDocument(kind, place, self.tenant, b"{}")

    def _look(self, name: str) -> Read:
        return Read(lambda engine: engine.document(stored.KIND, self.tenant, name))

    def _stored(self, name: str, kept: StoredSchedule) -> Schedule:
        if kept.next_us is not None:
            self.core.on_due(kept.next_us)
        return stored.view(self.tenant, name, kept)

    def get_schedule(self, name: str) -> Steps[Schedule]:
        """A schedule as it is now."""
        document = yield from self._there(name)
        return stored.view(self.tenant, name, stored.read(document))

    def _there(self, name: str) -> Steps[port.Document]:
        validate.name(name, "schedule")
        document: port.Document | None = yield self._look(name)
        if document is None:
            raise NotFound(f"no schedule {name}", field="name", hint="see tampu schedule list")
        return document

    def list_schedules(self) -> Steps[list[Schedule]]:
        """All schedules, by name, with when they fired last and fire next."""
        found: list[port.Document] = yield Read(lambda engine: engine.documents(stored.KIND, self.tenant))
        return [stored.view(self.tenant, d.name, stored.read(d)) for d in sorted(found, key=lambda d: d.name)]

    def delete_schedule(self, name: str) -> Steps[bool]:
        """Forget a schedule; whether it was there. Messages it has published stay."""
        validate.name(name, "schedule")
        return (yield port.DeleteDocument(stored.KIND, self.tenant, name))  # type: ignore[no-any-return]  # typed by the call

    def pause_schedule(self, name: str) -> Steps[Schedule]:
        """No ticks until `resume`; those in between are not fired later."""
        return (yield from self._set_paused(name, True))

    def resume_schedule(self, name: str) -> Steps[Schedule]:
        """Fire again, from now on."""
        return (yield from self._set_paused(name, False))

    def _set_paused(self, name: str, paused: bool) -> Steps[Schedule]:
        for _ in range(_TRIES):
            document = yield from self._there(name)
            now: int = yield Read(lambda engine: engine.now())
            old = stored.read(document)
            new = _paused(old, paused, now)
            if new == old:
                return stored.view(self.tenant, name, old)
            try:
                yield stored.writing(self.tenant, name, new, document.version)
            except VersionConflict:
                continue
            return self._stored(name, new)
        raise _restless(name)

    def fire_schedule(self, name: str, *, id: str | None = None) -> Steps[Message]:
        """Publish its message now, besides its ticks. With an ``id`` of your own it is safe to repeat."""
        document = yield from self._there(name)
        kept = stored.read(document)
        new = kept.message(name, id=None if id is None else validate.id_text(id))
        return (yield self.publishing(kept.queue, [new]))[0]  # type: ignore[no-any-return]  # typed by the call


def _changed(old: StoredSchedule | None, terms: Terms, now: int) -> StoredSchedule:
    """What the document holds then."""
    same = old is not None and terms.timing(old.timing.anchor_us) == old.timing
    goes_on = same and not _begins_again(old, terms.limit)
    base = old or StoredSchedule(
        incarnation=stored.incarnation(),
        queue=terms.queue,
        body=b"",
        created_us=now,
        after_us=now,
        timing=Timing(),
    )
    made = msgspec.structs.replace(
        base,
        queue=terms.queue,
        body=stored.packed(terms.item),
        timing=base.timing if same else terms.timing(now),
        after_us=base.after_us if goes_on else now,
        max_attempts=terms.message.max_attempts,
        delay_us=terms.item.delay_us,
        ttl_us=None if terms.message.ttl is None else terms.item.ttl_us,
        limit=terms.limit,
        jitter_us=terms.jitter_us,
        missed=terms.missed,
    )
    return made if terms.paused is None else _paused(made, terms.paused, now)


def _begins_again(old: StoredSchedule | None, limit: int | None) -> bool:
    """It had ended at its limit, and has a higher one: what it did not fire meanwhile was not missed."""
    if old is None or old.limit is None or old.fired < old.limit:
        return False
    return limit is None or limit > old.fired


def _paused(kept: StoredSchedule, paused: bool, now: int) -> StoredSchedule:
    if kept.paused == paused:
        return kept
    return msgspec.structs.replace(kept, paused=paused, after_us=kept.after_us if paused else now)


def _flag(value: Any, field: str) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise InvalidMessage(f"{field} must be true or false", field=field)
    return value


def _restless(name: str) -> VersionConflict:
    return VersionConflict(f"schedule {name} keeps changing", hint="try again")
