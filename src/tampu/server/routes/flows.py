"""Flows: publish, list, show, cancel, replay, and adding members while a flow runs.

To publish needs the permission publish in the queues of all members. To show a flow needs view, to cancel or replay it
operate, in the queues of all its members: a flow of which the caller may not view every queue counts as not found.
A worker that adds members which get results of others needs view or consume in the queues of those.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from tampu import tracing
from tampu.broker import validate
from tampu.broker.policies.flows.verbs import MOST_SHOWN
from tampu.model.errors import Forbidden, NotFound
from tampu.model.flows import FlowMember, FlowRecord
from tampu.server.auth.grants import Caller
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest
from tampu.server.routes.common import CurrentCaller, CurrentRequest, answer
from tampu.wire import flows as wire

router = APIRouter(prefix="/v1/flows", tags=["flows"])
Id = Annotated[str, Path(description="The id of the flow")]
_CHANGE = (404, 409, 507)


async def _members(request: HttpRequest, caller: Caller, given: list[Any]) -> list[FlowMember]:
    """The members of a body, after the permissions were checked."""
    queues = {validate.name(one.queue, "queue") for one in given}
    caller.need("publish", *sorted(queues))
    await request.spend(caller, max(1, len(given)))
    await request.server.load_settings(caller.tenant, *queues)
    return await request.off_loop(_plain, request, caller, given)


def _plain(request: HttpRequest, caller: Caller, given: list[Any]) -> list[FlowMember]:
    made = []
    for one in given:
        new = one.message.plain(request.server.max_payload(caller.tenant, one.queue))
        (new,) = tracing.carrying([new], request.trace)
        made.append(
            FlowMember(
                queue=one.queue, message=new, after=one.after, on_failure=one.on_failure, into=one.into, many=one.many
            )
        )  # fmt: skip
    return made


async def _find(request: HttpRequest, caller: Caller, id: str, permission: str) -> str:
    """Raise unless the caller has the permission in all queues of the flow."""
    caller.need_somewhere(permission)
    queues: set[str] = await request.drive(request.verbs.flow_queues(id))
    if not all(caller.may("view", queue) or caller.may(permission, queue) for queue in queues):
        raise NotFound(f"no flow {id}", field="id", hint="see tampu flow list")
    if not all(caller.may(permission, queue) for queue in queues):
        raise Forbidden(
            f"this needs the permission {permission} in all queues of the flow",
            hint="use a key that has it in all of them",
        )
    return id


async def _check_results(request: HttpRequest, caller: Caller, members: list[FlowMember]) -> None:
    """Raise if members get results of queues in which the caller may see none."""
    parents = {id for one in members if one.into is not None for id in one.after if isinstance(id, str)}
    queues: dict[str, str] = await request.drive(request.verbs.member_queues(parents))
    for id, queue in queues.items():
        if not (caller.may("view", queue) or caller.may("consume", queue)):
            raise Forbidden(
                f"this key may not see the result of {id}, and a new member gets it", field="members",
                hint="use a key with the permission view or consume for the queue of that member, or leave out into",
            )  # fmt: skip


@router.post(
    "",
    operation_id="publish_flow",
    **doc(wire.PublishedFlow, wire.PublishFlowJson, binary=wire.PublishFlow, more=_CHANGE, status=201),
)
async def publish_flow(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Publish a flow, all of it or nothing."""
    caller.need_somewhere("publish")
    body: wire.PublishFlow = await request.read_large(wire.PUBLISH)
    members = await _members(request, caller, body.members)
    steps = request.verbs.publish_flow(members, name=body.name, correlation_id=body.correlation_id, id=body.id)
    found = await request.drive(steps)
    request.subject.add(ids=[found])
    for queue in sorted({one.queue for one in members}):
        request.server.metrics.publish(caller.tenant, queue, sum(one.queue == queue for one in members))
    return answer(request, wire.PublishedFlow(found), 201)


@router.post(
    "/members",
    operation_id="add_to_flow",
    **doc(wire.AddedToFlow, wire.AddToFlowJson, binary=wire.AddToFlow, more=_CHANGE),
)
async def add_to_flow(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """A running member adds others to its flow."""
    caller.need_somewhere("consume")
    body: wire.AddToFlow = await request.read_large(wire.ADD)
    queue = validate.name(body.receipt.rpartition("/")[0], "receipt")
    caller.need("consume", queue)
    members = await _members(request, caller, body.members)
    await _check_results(request, caller, members)
    await request.server.load_settings(caller.tenant, queue)
    steps = request.verbs.add_to_flow(body.receipt, members, n=body.n, joins=body.joins, id=body.id)
    return answer(request, wire.AddedToFlow(await request.drive(steps)))


@router.get("", operation_id="list_flows", **doc(wire.FlowsView))
async def list_flows(
    request: CurrentRequest,
    caller: CurrentCaller,
    name: str | None = None,
    status: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: str | None = None,
) -> Response:
    """Flows, the newest first."""
    caller.need_somewhere("view")

    def may(queues: set[str]) -> bool:
        return all(caller.may("view", queue) for queue in queues)

    found = await request.drive_listing(caller, request.verbs.flows_for(may, name, status, limit, after))
    return answer(request, wire.FlowsView(found.flows, found.cursor))


@router.get("/{id}", operation_id="get_flow", **doc(FlowRecord, more=(404,)))
async def get_flow(
    id: Id, request: CurrentRequest, caller: CurrentCaller, limit: Annotated[int, Query(ge=0, le=MOST_SHOWN)] = 0
) -> Response:
    """A flow, with its first members if ``limit`` is not 0."""
    await _find(request, caller, id, "view")
    found = await request.drive_listing(caller, request.verbs.get_flow(id, limit=limit), lambda one: len(one.members))
    return answer(request, found)


@router.post("/{id}/cancel", operation_id="cancel_flow", **doc(FlowRecord, more=_CHANGE))
async def cancel_flow(id: Id, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Cancel all members that have not ended."""
    await _find(request, caller, id, "operate")
    await request.spend(caller, 1)
    return answer(request, await request.drive(request.verbs.cancel_flow(id)))


@router.post("/{id}/replay", operation_id="replay_flow", **doc(wire.ReplayedFlow, wire.ReplayFlow, more=_CHANGE))
async def replay_flow(id: Id, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Replay the dead members; or publish all of the flow again, as a new one, which also needs publish."""
    await _find(request, caller, id, "operate")
    body: wire.ReplayFlow = await request.read(wire.REPLAY)
    queues: set[str] = await request.drive(request.verbs.flow_queues(id))
    if not body.failed_only:
        caller.need("publish", *sorted(queues))
    await request.spend(caller, 1)
    await request.server.load_settings(caller.tenant, *queues)
    found = await request.drive_listing(caller, request.verbs.replay_flow(id, failed_only=body.failed_only))
    reply = wire.ReplayedFlow(count=found) if body.failed_only else wire.ReplayedFlow(id=found)
    return answer(request, reply)
