"""Schedules. A caller that creates one must be allowed to publish to its queue."""

from __future__ import annotations

import contextlib
from typing import Annotated

from fastapi import APIRouter, Path, Response

from tampu.broker import validate
from tampu.model.errors import Forbidden, NotFound
from tampu.model.schedule import Schedule
from tampu.server.auth.grants import Caller
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest
from tampu.server.routes.common import CurrentCaller, CurrentRequest, answer, view_for
from tampu.wire import bodies
from tampu.wire.messages import MessageView
from tampu.wire.schedules import (
    FIRE_SCHEDULE,
    PUT_SCHEDULE,
    FireSchedule,
    ScheduleBody,
    ScheduleJson,
    SchedulesView,
    ScheduleView,
    schedule_view,
)

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])
Name = Annotated[str, Path(description="Name of the schedule")]
_CHANGED = doc(ScheduleView, more=(404, 409, 507))


def _tell(request: HttpRequest, schedule: Schedule) -> Response:
    return answer(request, schedule_view(schedule, request.response_media))


async def find_schedule(request: HttpRequest, caller: Caller, name: str, permission: str) -> Schedule:
    """A schedule for which the caller has the permission. One that it may not view counts as not found."""
    caller.need_somewhere(permission)
    schedule = await request.drive(request.verbs.get_schedule(name))
    request.subject.add((schedule.queue,))
    if not (caller.may("view", schedule.queue) or caller.may(permission, schedule.queue)):
        raise NotFound(f"no schedule {schedule.name}", field="name")
    caller.need(permission, schedule.queue)
    return schedule


@router.get("", operation_id="list_schedules", **doc(SchedulesView))
async def list_schedules(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """The schedules of the queues that the caller may view, with their last and next run."""
    caller.need_somewhere("view")
    found = await request.drive(request.verbs.list_schedules())
    return answer(
        request, SchedulesView([schedule_view(s, request.response_media) for s in found if caller.may("view", s.queue)])
    )


@router.get("/{name}", operation_id="get_schedule", **doc(ScheduleView, more=(404,)))
async def get_schedule(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """One schedule in its current state."""
    return _tell(request, await find_schedule(request, caller, name, "view"))


@router.put(
    "/{name}",
    operation_id="put_schedule",
    **doc(ScheduleView, ScheduleJson, binary=ScheduleBody, more=(404, 409, 507)),
)
async def put_schedule(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Create or change a schedule. Needs the permissions operate and publish on its queue."""
    caller.need_somewhere("operate")
    body: ScheduleBody = await request.read(PUT_SCHEDULE)
    request.subject.add((body.queue,))
    caller.need("operate", body.queue)
    caller.need("publish", body.queue)
    verbs = request.verbs
    await request.server.load_settings(caller.tenant, validate.name(body.queue, "queue"))
    message = body.message.plain(request.server.max_payload(caller.tenant, body.queue))
    terms = verbs.terms(
        name, body.queue, message, body.cron, body.every, body.tz, body.start, body.end, body.limit, body.jitter,
        body.missed, body.paused,
    )  # fmt: skip
    with contextlib.suppress(NotFound):  # a new one
        old = await request.drive(verbs.get_schedule(name))
        if not caller.may("operate", old.queue):
            raise Forbidden(f"schedule {old.name} belongs to another queue", field="name", hint="use another name")
    return _tell(request, await request.drive(verbs.put_terms(name, terms)))


@router.delete("/{name}", operation_id="delete_schedule", **doc(bodies.Deleted, more=(404, 409, 507)))
async def delete_schedule(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Delete a schedule; the messages it has published stay."""
    try:
        await find_schedule(request, caller, name, "operate")
    except NotFound:
        return answer(request, bodies.Deleted(False))
    return answer(request, bodies.Deleted(await request.drive(request.verbs.delete_schedule(name))))


@router.post("/{name}/pause", operation_id="pause_schedule", **_CHANGED)
async def pause_schedule(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Stop until resume; runs missed in between are skipped."""
    await find_schedule(request, caller, name, "operate")
    return _tell(request, await request.drive(request.verbs.pause_schedule(name)))


@router.post("/{name}/resume", operation_id="resume_schedule", **_CHANGED)
async def resume_schedule(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Run again from now on."""
    await find_schedule(request, caller, name, "operate")
    return _tell(request, await request.drive(request.verbs.resume_schedule(name)))


@router.post(
    "/{name}/fire",
    operation_id="fire_schedule",
    **doc(MessageView, FireSchedule, more=(404, 409, 422, 507)),
)
async def fire_schedule(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Publish its message now, in addition to its regular runs."""
    schedule = await find_schedule(request, caller, name, "operate")
    caller.need("publish", schedule.queue)
    body: FireSchedule = await request.read(FIRE_SCHEDULE)
    await request.spend(caller, 1)
    await request.server.load_settings(caller.tenant, schedule.queue)
    message = await request.drive(request.verbs.fire_schedule(name, id=body.id))
    request.subject.add(ids=(message.id,))
    return answer(request, view_for(caller, message, request.response_media))
