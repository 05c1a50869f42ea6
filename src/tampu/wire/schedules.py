"""Schedules over HTTP, and conversion from and to the model.

The message of a schedule has the same fields as a published one; its payload is written as in wire/messages.py.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from tampu.model.message import JSON, NewMessage
from tampu.model.schedule import Schedule
from tampu.model.times import Seconds
from tampu.wire.bodies import BinaryMessage, JsonMessage, RequestBody
from tampu.wire.media import Form
from tampu.wire.messages import payload_in_json


class ScheduleBody(RequestBody, kw_only=True):
    """What to publish, and when: by ``cron``, or ``every`` N seconds."""

    queue: str
    message: BinaryMessage
    cron: str | None = None
    every: Seconds | None = None
    tz: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    limit: int | None = None
    jitter: Seconds = 0
    missed: str = "once"
    paused: bool | None = None
    """Unchanged if not given."""


class ScheduleJson(ScheduleBody, kw_only=True):
    message: JsonMessage  # type: ignore[assignment]  # the same fields, in JSON


class ScheduledMessage(NewMessage, frozen=True, kw_only=True):
    """What a schedule publishes; in JSON, bytes are in ``payload_base64``."""

    payload: Any = msgspec.UNSET
    payload_base64: bytes | None = None
    delay: Seconds | None = None
    ttl: Seconds | None = None


class ScheduleView(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A schedule with its last and next run. Durations are seconds."""

    name: str
    tenant: str
    queue: str
    message: ScheduledMessage
    status: str
    missed: str
    created_at: datetime
    fired: int
    cron: str | None = None
    every: float | None = None
    tz: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    limit: int | None = None
    jitter: float = 0
    paused: bool = False
    last: datetime | None = None
    last_id: str | None = None
    next: datetime | None = None
    error: str | None = None


class SchedulesView(msgspec.Struct):
    schedules: list[ScheduleView]


class FireSchedule(RequestBody):
    """With an ``id`` of your own (a UUID) the request is safe to repeat."""

    id: str | None = None


PUT_SCHEDULE = Form(ScheduleBody, ScheduleJson)
FIRE_SCHEDULE = Form(FireSchedule)
_SAME = ("name", "tenant", "queue", "missed", "created_at", "fired", "cron", "tz", "start", "end", "limit", "paused",
         "last", "last_id", "next", "error")  # fmt: skip
_MESSAGE_FIELDS = tuple(name for name in NewMessage.__struct_fields__ if name != "payload")


def schedule_view(schedule: Schedule, media: str) -> ScheduleView:
    new = schedule.message
    payload, base64 = new.payload, None
    if media == JSON:
        payload, base64 = payload_in_json(new.payload, new.content_type or "")
    fields: dict[str, Any] = {name: getattr(new, name) for name in _MESSAGE_FIELDS}
    return ScheduleView(
        message=ScheduledMessage(payload=payload, payload_base64=base64, **fields),
        status=schedule.status,
        every=None if schedule.every is None else schedule.every.total_seconds(),
        jitter=schedule.jitter.total_seconds(),
        **{name: getattr(schedule, name) for name in _SAME},
    )


def to_schedule(view: ScheduleView) -> Schedule:
    """Convert a view that was decoded from MessagePack."""
    fields: dict[str, Any] = {name: getattr(view.message, name) for name in _MESSAGE_FIELDS}
    payload = b"" if view.message.payload is msgspec.UNSET else view.message.payload
    return Schedule(
        message=NewMessage(payload, **fields),
        every=None if view.every is None else timedelta(seconds=view.every),
        jitter=timedelta(seconds=view.jitter),
        **{name: getattr(view, name) for name in _SAME},
    )
