"""Dead letters across queues: list, groups, replay with cancel and undo, purge.

A caller sees those of the queues that it may view, and replays or removes those of the queues that it may operate.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Path, Query, Response

from tampu.broker.dead.filters import DeadFilters
from tampu.broker.store import AllVerbs
from tampu.model.config import is_pattern
from tampu.model.dead import DeadGroups, DeadJob
from tampu.server.auth.grants import Caller
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest
from tampu.server.routes.admin import charge_moved
from tampu.server.routes.common import CurrentCaller, CurrentRequest, answer
from tampu.wire import bodies, dead
from tampu.wire.messages import message_view

router = APIRouter(prefix="/v1/dead", tags=["dead letters"])
Moment = Annotated[datetime | None, Query(description="A time with its zone")]
ReplayId = Annotated[str, Path(description="Id of the replay", max_length=64)]
After = Annotated[str | None, Query(max_length=2000, description="The cursor of the previous page")]


def _filters(
    queue: Annotated[str | None, Query(description="A queue, a scope such as `shop.*`, or `*`")] = None,
    scope: Annotated[str | None, Query(description="`shop`: all queues that begin with `shop.`")] = None,
    reason: str | None = None,
    type: str | None = None,
    error: Annotated[str | None, Query(description="Text that the last error contains")] = None,
    fingerprint: Annotated[str | None, Query(description="Of the error, as the groups have it")] = None,
    since: Moment = None,
    until: Moment = None,
) -> DeadFilters:
    return {
        "queue": queue, "scope": scope, "reason": reason, "type": type, "error": error, "fingerprint": fingerprint,
        "since": since, "until": until,
    }  # fmt: skip


Filters = Annotated[DeadFilters, Depends(_filters)]


def _verbs(request: HttpRequest, caller: Caller, permission: str, queue: str | None = None) -> AllVerbs:
    """The verbs, for the queues in which the caller has the permission."""
    caller.need_somewhere(permission)
    if queue is not None and not is_pattern(queue):
        caller.need(permission, queue)
    return request.verbs.limited_to(caller.patterns(permission))


@router.get("", operation_id="list_dead", **doc(bodies.MessagesView))
async def list_dead(
    request: CurrentRequest,
    caller: CurrentCaller,
    filters: Filters,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """A page of dead letters: queue by queue, in each the oldest first. It may be short and still have a cursor."""
    steps = _verbs(request, caller, "view", filters.get("queue")).list_dead(after=after, limit=limit, **filters)
    page = await request.drive_listing(caller, steps, lambda page: len(page.messages))
    form = request.response_media
    return answer(request, bodies.MessagesView([message_view(m, form) for m in page.messages], page.cursor))


@router.get("/groups", operation_id="group_dead", **doc(DeadGroups))
async def group_dead(request: CurrentRequest, caller: CurrentCaller, filters: Filters, after: After = None) -> Response:
    """Dead letters by the fingerprint of their error. With a ``cursor`` there are more to count."""
    steps = _verbs(request, caller, "view", filters.get("queue")).group_some_dead(after=after, **filters)
    return answer(request, await request.drive_listing(caller, steps, lambda groups: groups.read))


def _given(body: dead.DeadSelection) -> DeadFilters:
    return cast(DeadFilters, {name: getattr(body, name) for name in dead.FILTERS})


@router.post("/replay", operation_id="replay_dead", **doc(DeadJob, dead.DeadReplayBody, more=(404, 409, 507)))
async def replay_dead(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Replay dead letters, at a rate if one is given. With ``dry_run`` only say how many there are, and where."""
    body: dead.DeadReplayBody = await request.read(dead.REPLAY)
    steps = _verbs(request, caller, "operate", body.queue).replay_dead(
        body.ids, rate=body.rate, limit=body.limit, dry_run=body.dry_run, **_given(body)
    )
    await request.spend(caller, 1)
    made: DeadJob = await request.drive(steps)
    await charge_moved(request, caller, 0 if body.dry_run else made.count)
    return answer(request, made)


@router.post("/purge", operation_id="purge_dead", **doc(DeadJob, dead.DeadPurgeBody, more=(404, 409, 507)))
async def purge_dead(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Remove dead letters for good. If it is not ``complete``, send its ``cursor`` as ``after``."""
    body: dead.DeadPurgeBody = await request.read(dead.PURGE)
    steps = _verbs(request, caller, "operate", body.queue).purge_dead(
        body.ids, dry_run=body.dry_run, after=body.after, **_given(body)
    )
    await request.spend(caller, 1)
    made: DeadJob = await request.drive(steps)
    await charge_moved(request, caller, 0 if body.dry_run else made.count)
    return answer(request, made)


@router.get("/replays", operation_id="list_dead_replays", **doc(dead.DeadJobs))
async def replays(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Replays that run, or ended within a day."""
    steps = _verbs(request, caller, "operate").list_dead_replays()
    return answer(request, dead.DeadJobs(await request.drive_listing(caller, steps)))


@router.get("/replays/{id}", operation_id="get_dead_replay", **doc(DeadJob, more=(404,)))
async def get_replay(id: ReplayId, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """A replay, with what it has done so far."""
    return answer(request, await request.drive(_verbs(request, caller, "operate").get_dead_replay(id)))


@router.delete("/replays/{id}", operation_id="cancel_dead_replay", **doc(DeadJob, more=(404, 409, 507)))
async def cancel_replay(id: ReplayId, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Replay nothing more. What was replayed stays so."""
    return answer(request, await request.drive(_verbs(request, caller, "operate").cancel_dead_replay(id)))


@router.post("/replays/{id}/undo", operation_id="undo_dead_replay", **doc(DeadJob, more=(404, 409, 507)))
async def undo_replay(id: ReplayId, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Replay nothing more, and make dead again what was replayed within the last minute and not delivered since."""
    return answer(request, await request.drive(_verbs(request, caller, "operate").undo_dead_replay(id)))
