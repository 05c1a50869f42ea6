"""Schedules in topology files. Whether one is paused is what operators do: a file without it leaves it alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from tampu.broker.schedules import stored
from tampu.broker.schedules.verbs import changed_schedule
from tampu.broker.topology.sections import Fields, Plan, Section, plain
from tampu.engines.port import DeleteDocument, Document, Engine, PutDocument
from tampu.model.decoders import convert
from tampu.model.message import JSON, NewMessage
from tampu.model.schedule import Schedule

Seconds = float | str
"""A number, or such as ``5m``."""


class ScheduleEntry(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Messages that are published by ``cron`` or ``every`` so often. The fields are those of `store.schedules.put`."""

    queue: str
    cron: str | None = None
    every: Seconds | None = None
    tz: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    limit: int | None = None
    jitter: Seconds = 0
    missed: str = "once"
    paused: bool | None = None
    payload: Any = None
    payload_base64: bytes | None = None
    """The payload, if it is not JSON."""
    type: str | None = None
    priority: int = 0
    delay: Seconds | None = None
    ttl: Seconds | None = None
    deadline: datetime | None = None
    key: str | None = None
    labels: dict[str, str] | None = None
    headers: dict[str, str] | None = None
    max_attempts: int | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    parent_id: str | None = None
    group: str | None = None
    source: str | None = None
    content_type: str | None = None
    hold: str | None = None


_OF_MESSAGE = ("type", "priority", "deadline", "key", "labels", "headers", "max_attempts", "correlation_id",
               "causation_id", "parent_id", "group", "source", "content_type", "hold")  # fmt: skip
_OF_SCHEDULE = ("queue", "cron", "tz", "start", "end", "limit", "missed")


class ScheduleSection(Section):
    name = "schedules"

    def stored(self, engine: Engine, tenant: str) -> dict[str, Document]:
        return {document.name: document for document in engine.documents(stored.KIND, tenant)}

    def fields(self, name: str, document: Document) -> Fields | None:
        return _fields(stored.view(document.tenant, name, stored.read(document)))

    def plan(self, engine: Engine, verbs: Any, name: str, fields: Fields, document: Document | None) -> Plan | None:
        entry = convert(fields, ScheduleEntry)
        terms = verbs.terms(
            name, entry.queue, _message(entry), entry.cron, entry.every, entry.tz, entry.start,
            entry.end, entry.limit, entry.jitter, entry.missed, entry.paused,
        )  # fmt: skip
        old = None if document is None else stored.read(document)
        new = changed_schedule(old, terms, engine.now())
        before = None if old is None else _fields(stored.view(verbs.tenant, name, old))
        after = _fields(stored.view(verbs.tenant, name, new))
        if old is not None and before == after and old.paused == new.paused:
            return None
        calls: list[PutDocument | DeleteDocument] = [
            stored.writing(verbs.tenant, name, new, document.version if document else 0)
        ]
        kind, owner = stored.TENANTS
        if engine.document(kind, owner, verbs.tenant) is None:
            calls.append(PutDocument(kind, owner, verbs.tenant, b"{}"))
        if entry.paused is not None:
            before = None if old is None or before is None else {**before, "paused": old.paused}
            after = {**after, "paused": new.paused}
        return Plan(self.changed(name, before, after), "schedule.put", calls, new.next_us)

    def remove(self, engine: Engine, verbs: Any, name: str, document: Document) -> Plan | None:  # noqa: ARG002
        calls: list[PutDocument | DeleteDocument] = [DeleteDocument(stored.KIND, verbs.tenant, name, document.version)]
        return Plan(self.changed(name, self.fields(name, document), None), "schedule.delete", calls)

    def schema(self) -> tuple[Any, set[str]]:
        return ScheduleEntry, set()


def _message(entry: ScheduleEntry) -> NewMessage:
    payload = entry.payload if entry.payload_base64 is None else entry.payload_base64
    more: dict[str, Any] = {name: getattr(entry, name) for name in _OF_MESSAGE}
    return NewMessage(payload, delay=entry.delay, ttl=entry.ttl, **more)


def _fields(schedule: Schedule) -> Fields:
    """A schedule as a file has it."""
    message = schedule.message
    payload, raw, content_type = None, None, message.content_type
    try:
        payload = msgspec.json.decode(message.payload) if content_type == JSON else None
    except (msgspec.MsgspecError, RecursionError):  # the publisher may have labelled anything as JSON
        raw = message.payload
    else:
        raw = None if content_type == JSON else message.payload
    more: dict[str, Any] = {name: getattr(schedule, name) for name in _OF_SCHEDULE}
    more |= {name: getattr(message, name) for name in _OF_MESSAGE}
    more |= {"content_type": None if raw is None else content_type}
    if message.type == "message":  # that of messages without one
        more["type"] = None
    entry = ScheduleEntry(
        payload=payload,
        payload_base64=raw,
        every=_number(schedule.every),
        jitter=_number(schedule.jitter) or 0,
        delay=_number(message.delay),
        ttl=_number(message.ttl),
        **more,
    )
    return plain(entry)


def _number(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value
