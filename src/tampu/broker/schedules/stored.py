"""A schedule as it is stored: one document, changed only by compare-and-set. Ticks and messages are derived from it.

A tick fires exactly once, whichever process dies. Its message is published, and the document updated, as one unit. The
unit is refused if the document has changed since it was read, so of several processes only one fires a tick. Ticks that
cannot be published, such as when the queue is full, are listed in the document; they fire when that is possible.
"""

from __future__ import annotations

import secrets
import uuid
from datetime import timedelta
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.schedules import ticks
from tampu.broker.schedules.ticks import Decision, Timing
from tampu.engines.port import Document, Item, PutDocument
from tampu.model.decoders import from_json
from tampu.model.message import NewMessage, unpack_body
from tampu.model.schedule import Schedule
from tampu.model.times import moment, moment_or_none
from tampu.model.values import pack_body

KIND = "schedule"
TENANTS = ("schedule_tenant", "*")
"""Kind and tenant of the documents whose names are the tenants with schedules."""
SCHEDULE_HEADER = "tampu-schedule"
TICK_HEADER = "tampu-tick"
MOST_HEADERS = 62
"""Most headers that a user can give: each message gets two more."""
_IDS = uuid.UUID("7a1d5c1e-2b1f-5a5e-9d6f-2f6c3f0f5b7e")


class StoredSchedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the document."""

    incarnation: str
    """New for each schedule that is created, so that a deleted schedule of the same name shares no tick ids with it."""
    queue: str
    body: bytes
    created_us: int
    after_us: int
    """For all ticks up to this time it is decided whether they fire."""
    timing: Timing
    max_attempts: int | None = None
    delay_us: int | None = None
    ttl_us: int | None = None
    limit: int | None = None
    jitter_us: int = 0
    missed: str = "once"
    paused: bool = False
    fired: int = 0
    last_us: int | None = None
    last_id: str | None = None
    firing: tuple[int, ...] = ()
    """Ticks that will fire, and could not be published yet."""
    error: str | None = None

    @property
    def next_us(self) -> int | None:
        """When the next tick is due; 0 if some wait in ``firing``."""
        if self.firing:
            return 0
        if self.paused or (self.limit is not None and self.fired >= self.limit):
            return None
        tick = ticks.following(self.timing, self.after_us)
        return None if tick is None else ticks.due(self.timing, self.jitter_us, self.incarnation, tick)

    def decide(self, now_us: int) -> Decision | None:
        if self.paused:
            return None
        left = None if self.limit is None else self.limit - self.fired
        if left is not None and left <= 0:
            return None
        return ticks.decide(
            self.timing,
            jitter_us=self.jitter_us,
            seed=self.incarnation,
            missed=self.missed,
            after_us=self.after_us,
            left=left,
            now_us=now_us,
        )

    @property
    def new(self) -> NewMessage:
        """The message to publish, its payload encoded."""
        return validate.from_body(
            unpack_body(self.body),
            max_attempts=self.max_attempts,
            delay=None if self.delay_us is None else timedelta(microseconds=self.delay_us),
            ttl=None if self.ttl_us is None else timedelta(microseconds=self.ttl_us),
        )

    def message(self, name: str, **more: Any) -> NewMessage:
        """The message to publish, with headers and source that name the schedule."""
        new = self.new
        headers = {**(new.headers or {}), SCHEDULE_HEADER: name, **more.pop("headers", {})}
        return msgspec.structs.replace(new, headers=headers, source=new.source or f"schedule:{name}", **more)

    def id(self, tick_us: int) -> str:
        """The message id of a tick."""
        return str(uuid.uuid5(_IDS, f"{self.incarnation}/{tick_us}"))

    def of_tick(self, name: str, tick_us: int) -> NewMessage:
        """The message of a tick."""
        return self.message(
            name,
            headers={TICK_HEADER: moment(tick_us).isoformat()},
            id=self.id(tick_us),
        )


REFUSED = ("id", "idempotency_key", "run_at")
"""Fields of a message that a schedule sets itself."""


_read = from_json(StoredSchedule).decode


def packed(item: Item) -> bytes:
    return pack_body(item.body)


def incarnation() -> str:
    return secrets.token_hex(12)


def read(document: Document) -> StoredSchedule:
    return _read(document.value)


def writing(tenant: str, name: str, schedule: StoredSchedule, version: int) -> PutDocument:
    return PutDocument(KIND, tenant, name, msgspec.json.encode(schedule), version)


def view(tenant: str, name: str, schedule: StoredSchedule) -> Schedule:
    timing = schedule.timing
    shown = schedule.firing[0] if schedule.firing else schedule.next_us
    return Schedule(
        name=name,
        tenant=tenant,
        queue=schedule.queue,
        message=schedule.new,
        cron=timing.cron,
        every=None if timing.every_us is None else timedelta(microseconds=timing.every_us),
        tz=timing.tz,
        start=moment_or_none(timing.start_us),
        end=moment_or_none(timing.end_us),
        limit=schedule.limit,
        jitter=timedelta(microseconds=schedule.jitter_us),
        missed=schedule.missed,
        paused=schedule.paused,
        created_at=moment(schedule.created_us),
        fired=schedule.fired,
        last=moment_or_none(schedule.last_us),
        last_id=schedule.last_id,
        next=moment_or_none(shown),
        error=schedule.error,
    )
