"""Schedules over HTTP."""

from __future__ import annotations

import msgspec

from tampu.broker import validate
from tampu.broker.core import Steps
from tampu.broker.schedules.verbs import ScheduleVerbs, Terms
from tampu.client.request import call, new_ids, quoted, reader
from tampu.model.message import Message
from tampu.model.schedule import Schedule
from tampu.model.times import SECOND, moment_or_none
from tampu.wire import bodies
from tampu.wire.bodies import BinaryMessage
from tampu.wire.messages import MessageView, to_message
from tampu.wire.schedules import FireSchedule, ScheduleBody, SchedulesView, ScheduleView, to_schedule

_READ = reader(ScheduleView, to_schedule)
_READ_ALL = reader(SchedulesView, lambda reply: [to_schedule(view) for view in reply.schedules])
_READ_DELETED = reader(bodies.Deleted, lambda reply: reply.deleted)
_READ_MESSAGE = reader(MessageView, to_message)


def _path(name: str, verb: str = "") -> str:
    return f"/v1/schedules/{quoted(validate.name(name, 'schedule'))}{verb}"


class RemoteScheduleVerbs(ScheduleVerbs):
    def put_terms(self, name: str, terms: Terms) -> Steps[Schedule]:
        body = terms.item.body
        fields = msgspec.structs.replace(terms.message, content_type=body.content_type)
        payload = msgspec.Raw(msgspec.msgpack.encode(body.payload))
        message = BinaryMessage(payload, *msgspec.structs.astuple(fields)[1:])
        schedule = ScheduleBody(
            queue=terms.queue,
            message=message,
            cron=terms.cron,
            every=None if terms.every_us is None else terms.every_us / SECOND,
            tz=terms.tz,
            start=moment_or_none(terms.start_us),
            end=moment_or_none(terms.end_us),
            limit=terms.limit,
            jitter=terms.jitter_us / SECOND,
            missed=terms.missed,
            paused=terms.paused,
        )
        return (yield from call("PUT", _path(name), _READ, schedule))

    def get_schedule(self, name: str) -> Steps[Schedule]:
        return (yield from call("GET", _path(name), _READ))

    def list_schedules(self) -> Steps[list[Schedule]]:
        return (yield from call("GET", "/v1/schedules", _READ_ALL))

    def delete_schedule(self, name: str) -> Steps[bool]:
        return (yield from call("DELETE", _path(name), _READ_DELETED, repeat=False))

    def _set_paused(self, name: str, paused: bool) -> Steps[Schedule]:
        return (yield from call("POST", _path(name, "/pause" if paused else "/resume"), _READ))

    def fire_schedule(self, name: str, *, id: str | None = None) -> Steps[Message]:
        message_id = new_ids(1)[0] if id is None else validate.id_text(id)
        message = yield from call("POST", _path(name, "/fire"), _READ_MESSAGE, FireSchedule(message_id))
        # A duplicate of an id that this call made was stored by an earlier try of the same call.
        return msgspec.structs.replace(message, duplicate=False) if id is None else message
