"""Queues: names, statistics, settings, status."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response

from tampu.broker.admin.verbs import Stats
from tampu.model.config import QueueConfig, is_pattern
from tampu.model.errors import InvalidMessage
from tampu.server.auth.grants import Caller
from tampu.server.http.openapi import doc
from tampu.server.routes.admin import charge_moved
from tampu.server.routes.common import CurrentCaller, CurrentRequest, QueueName, answer
from tampu.wire import bodies

router = APIRouter(prefix="/v1", tags=["queues"])


def _need(caller: Caller, permission: str, queue: str) -> None:
    """A scope such as ``shop.*`` concerns all its queues; ``*`` concerns all queues."""
    if is_pattern(queue):
        caller.need_pattern(permission, queue)
    else:
        caller.need(permission, queue)


@router.get("/queues", operation_id="queues", **doc(bodies.QueueNames))
async def names(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """The names of the queues that the caller may view."""
    caller.need_somewhere("view")
    found = await request.drive_listing(caller, request.verbs.list_queues())
    return answer(request, bodies.QueueNames([name for name in found if caller.may("view", name)]))


def _view(stats: Stats) -> bodies.StatsView:
    age = stats.oldest_ready_age
    return bodies.StatsView(
        stats.queue, stats.counts, stats.depth, stats.status, None if age is None else age.total_seconds()
    )


@router.get("/stats", operation_id="stats", **doc(bodies.StatsMany))
async def all_stats(
    request: CurrentRequest,
    caller: CurrentCaller,
    scope: Annotated[str, Query(description="only queues of a scope, such as `shop.*`")] = "*",
) -> Response:
    """The statistics of all queues that the caller may view."""
    caller.need_somewhere("view")
    if not is_pattern(scope):
        raise InvalidMessage(f"{scope!r:.150} is not a scope", field="scope", hint="a scope ends with .*, as shop.*")
    found: list[Stats] = await request.drive_listing(caller, request.verbs.stats(scope))
    return answer(request, bodies.StatsMany([_view(stats) for stats in found if caller.may("view", stats.queue)]))


@router.get("/queues/{queue}/stats", operation_id="queue_stats", **doc(bodies.StatsView, more=(404,)))
async def stats(queue: QueueName, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """The statistics of one queue. They are maintained with every change, so this is cheap."""
    caller.need("view", queue)
    return answer(request, _view(await request.drive(request.verbs.stats(queue))))


@router.get("/queues/{queue}/config", operation_id="get_config", **doc(QueueConfig))
async def get_config(
    queue: QueueName,
    request: CurrentRequest,
    caller: CurrentCaller,
    inherited: Annotated[bool, Query(description="false: only the queue's own settings")] = True,
) -> Response:
    """The effective settings of a queue; for ``*``, the defaults of all queues."""
    _need(caller, "view", queue)
    return answer(request, await request.drive(request.verbs.get_config(queue, inherited=inherited)))


@router.get("/queues/{queue}/config/sources", operation_id="config_sources", **doc(bodies.ConfigSources))
async def config_sources(queue: QueueName, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Where each setting comes from: the queue itself, a scope such as `shop.*`, `*`, or `built in`."""
    _need(caller, "view", queue)
    return answer(request, bodies.ConfigSources(await request.drive(request.verbs.config_sources(queue))))


@router.patch(
    "/queues/{queue}/config", operation_id="put_config", **doc(QueueConfig, bodies.ConfigBody, more=(409, 507))
)
async def put_config(queue: QueueName, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Change settings; creates the queue if it is new. Returns the queue's own settings."""
    _need(caller, "operate", queue)
    body: bodies.ConfigBody = await request.read(bodies.CONFIG)
    changes: dict[str, Any] = {
        name: getattr(body, name) for name in body.__struct_fields__ if getattr(body, name) is not msgspec.UNSET
    }
    if isinstance(target := changes.get("dead_letter_to"), str) and target:
        caller.need("operate", target)
    return answer(request, await request.drive(request.verbs.put_config(queue, **changes)))


@router.delete("/queues/{queue}/config", operation_id="reset_config", **doc(bodies.Deleted, more=(409, 507)))
async def reset_config(queue: QueueName, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Remove the queue's own settings, so that it inherits all. The messages stay."""
    _need(caller, "operate", queue)
    return answer(request, bodies.Deleted(await request.drive(request.verbs.reset_config(queue))))


@router.delete("/queues/{queue}", operation_id="remove_queue", **doc(bodies.Count, more=(404, 409, 507)))
async def remove(
    queue: QueueName,
    request: CurrentRequest,
    caller: CurrentCaller,
    force: Annotated[bool, Query(description="true: even if messages wait in it")] = False,
) -> Response:
    """Remove a queue with its settings and messages for good. Returns their number. Refused while any is leased."""
    caller.need("operate", queue)
    await request.spend(caller, 1)
    count: int = await request.drive(request.verbs.remove_queue(queue, force=force))
    await charge_moved(request, caller, count)
    return answer(request, bodies.Count(count))


def _add_status_route(name: str, verb: str, text: str) -> None:
    async def set_status(queue: QueueName, request: CurrentRequest, caller: CurrentCaller) -> Response:
        caller.need("operate", queue)
        await request.drive(getattr(request.verbs, verb)(queue))
        return answer(request, await request.drive(request.verbs.get_config(queue, inherited=False)))

    described = doc(QueueConfig, more=(404, 409, 507))
    path = f"/queues/{{queue}}/{name}"
    router.post(path, name=name, operation_id=name, description=text, **described)(set_status)


_add_status_route("pause", "pause", "Stop delivery until resume; publishing still works.")
_add_status_route("resume", "resume", "Deliver and accept messages again.")
_add_status_route("drain", "drain", "Accept no new messages; deliver the existing ones.")
_add_status_route("close", "close_queue", "Neither deliver nor accept messages.")
