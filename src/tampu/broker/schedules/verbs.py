"""The verbs of schedules: put, get, list, pause, resume, delete, fire now. `fire` fires the ticks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.core import Read, Steps
from tampu.broker.schedules import stored, times
from tampu.broker.schedules.stored import StoredSchedule
from tampu.broker.schedules.ticks import Timing
from tampu.broker.verbs import Verbs
from tampu.engines import port
from tampu.model.errors import InvalidMessage, NotFound, VersionConflict
from tampu.model.message import Message, NewMessage
from tampu.model.schedule import Schedule
from tampu.model.times import Duration

_TRIES = 20


class Terms(msgspec.Struct, frozen=True):
    """The checked arguments of `put_schedule`; ``paused`` None leaves it as it is."""

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
    """Work with the schedules of one tenant."""

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
        """Create or change a schedule: publish a message by ``cron`` (in the zone ``tz``) or ``every`` interval.

        The first tick of an interval is one interval from now, or at ``start``. Putting the same schedule again changes
        nothing, and a change that keeps the times loses no tick. ``missed`` is for ticks when no process was running:
        ``skip`` them, fire the newest ``once``, or the newest n with ``all(n)``. With ``key``, a tick replaces the
        message of the tick before if that still waits. The other options are those of `publish`.
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
        """Check the arguments of `put_schedule`."""
        validate.name(name, "schedule")
        for field in stored.REFUSED:
            if getattr(new, field) is not None:
                raise InvalidMessage(f"a schedule sets {field} itself", field=field, hint=f"omit {field}")
        item = validate.item(queue, self._settings(validate.name(queue, "queue")), new)
        if new.headers is not None and len(new.headers) > stored.MOST_HEADERS:
            raise InvalidMessage(f"a schedule can have at most {stored.MOST_HEADERS} headers", field="headers")
        found = times.checked(cron, every, tz, start, end, limit, jitter, missed, paused)
        return Terms(queue, item, new, *msgspec.structs.astuple(found))

    def put_terms(self, name: str, terms: Terms) -> Steps[Schedule]:
        yield from self._register()
        for _ in range(_TRIES):
            document: port.Document | None = yield self._read(name)
            now: int = yield Read(lambda engine: engine.now())
            old = None if document is None else stored.read(document)
            new = changed_schedule(old, terms, now)
            if new == old:
                return stored.view(self.tenant, name, new)
            try:
                put = stored.writing(self.tenant, name, new, document.version if document else 0)
                yield from self.recorded([put], "schedule.put", name, _shown(old), _shown(new))
            except VersionConflict:
                continue
            return self._stored(name, new)
        raise _keeps_changing(name)

    def _register(self) -> Steps[None]:
        """Record that this tenant has schedules, for the scheduler."""
        kind, owner = stored.TENANTS
        if (yield Read(lambda engine: engine.document(kind, owner, self.tenant))) is None:
            yield port.PutDocument(kind, owner, self.tenant, b"{}")

    def _read(self, name: str) -> Read:
        return Read(lambda engine: engine.document(stored.KIND, self.tenant, name))

    def _stored(self, name: str, schedule: StoredSchedule) -> Schedule:
        if schedule.next_us is not None:
            self.core.on_due(schedule.next_us)
        return stored.view(self.tenant, name, schedule)

    def get_schedule(self, name: str) -> Steps[Schedule]:
        """A schedule as it is now."""
        document = yield from self._existing(name)
        return stored.view(self.tenant, name, stored.read(document))

    def _existing(self, name: str) -> Steps[port.Document]:
        validate.name(name, "schedule")
        document: port.Document | None = yield self._read(name)
        if document is None:
            raise NotFound(f"no schedule {name}", field="name", hint="see tampu schedule list")
        return document

    def list_schedules(self) -> Steps[list[Schedule]]:
        """All schedules, sorted by name, with the times of their last and next tick."""
        found: list[port.Document] = yield Read(lambda engine: engine.documents(stored.KIND, self.tenant))
        return [stored.view(self.tenant, d.name, stored.read(d)) for d in sorted(found, key=lambda d: d.name)]

    def delete_schedule(self, name: str) -> Steps[bool]:
        """Delete a schedule; false if there was none. Messages that it has published stay."""
        validate.name(name, "schedule")
        document: port.Document | None = yield self._read(name)
        if document is None:
            return False
        delete = port.DeleteDocument(stored.KIND, self.tenant, name)
        (gone,) = yield from self.recorded([delete], "schedule.delete", name, _shown(stored.read(document)))
        return bool(gone)

    def pause_schedule(self, name: str) -> Steps[Schedule]:
        """Fire no ticks until `resume`. The ticks until then are never fired."""
        return (yield from self._set_paused(name, True))

    def resume_schedule(self, name: str) -> Steps[Schedule]:
        """Fire ticks again, from now on."""
        return (yield from self._set_paused(name, False))

    def _set_paused(self, name: str, paused: bool) -> Steps[Schedule]:
        for _ in range(_TRIES):
            document = yield from self._existing(name)
            now: int = yield Read(lambda engine: engine.now())
            old = stored.read(document)
            new = _paused(old, paused, now)
            if new == old:
                return stored.view(self.tenant, name, old)
            try:
                put = stored.writing(self.tenant, name, new, document.version)
                yield from self.recorded([put], "schedule.pause" if paused else "schedule.resume", name)
            except VersionConflict:
                continue
            return self._stored(name, new)
        raise _keeps_changing(name)

    def fire_schedule(self, name: str, *, id: str | None = None) -> Steps[Message]:
        """Publish the message of a schedule now, apart from its ticks. With your own ``id`` it is safe to repeat."""
        document = yield from self._existing(name)
        schedule = stored.read(document)
        new = schedule.message(name, id=None if id is None else validate.id_text(id))
        return (yield self.publishing(schedule.queue, [new]))[0]  # type: ignore[no-any-return]  # typed by the call


def changed_schedule(old: StoredSchedule | None, terms: Terms, now: int) -> StoredSchedule:
    """The new content of the document."""
    same = old is not None and terms.timing(old.timing.anchor_us) == old.timing
    continues = same and not _begins_again(old, terms.limit)
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
        after_us=base.after_us if continues else now,
        max_attempts=terms.message.max_attempts,
        delay_us=terms.item.delay_us,
        ttl_us=None if terms.message.ttl is None else terms.item.ttl_us,
        limit=terms.limit,
        jitter_us=terms.jitter_us,
        missed=terms.missed,
    )
    return made if terms.paused is None else _paused(made, terms.paused, now)


def _shown(schedule: StoredSchedule | None) -> dict[str, Any] | None:
    """What the audit trail says of a schedule: all but its message."""
    if schedule is None:
        return None
    fields = ("queue", "limit", "jitter_us", "missed", "paused")
    return {name: getattr(schedule, name) for name in fields} | {"timing": schedule.timing}


def _begins_again(old: StoredSchedule | None, limit: int | None) -> bool:
    """True if it had reached its limit and now has a higher one: ticks between are not missed ticks."""
    if old is None or old.limit is None or old.fired < old.limit:
        return False
    return limit is None or limit > old.fired


def _paused(schedule: StoredSchedule, paused: bool, now: int) -> StoredSchedule:
    if schedule.paused == paused:
        return schedule
    return msgspec.structs.replace(schedule, paused=paused, after_us=schedule.after_us if paused else now)


def _keeps_changing(name: str) -> VersionConflict:
    return VersionConflict(f"schedule {name} keeps changing", hint="try again")
