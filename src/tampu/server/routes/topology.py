"""Topologies: apply and export. They are about everything of a tenant, so they need the permission admin."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Response

from tampu.broker.topology.verbs import about_the_store, topology_schema
from tampu.model.errors import Forbidden
from tampu.model.topology import Applied
from tampu.server.http.openapi import doc
from tampu.server.routes.common import CurrentCaller, CurrentRequest, answer
from tampu.wire.topology import APPLY_TOPOLOGY, ApplyTopology, TopologySchema, TopologyView

router = APIRouter(prefix="/v1/topology", tags=["topology"])


@router.get("", operation_id="export_topology", **doc(TopologyView))
async def export_topology(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """All that is configured, as a topology; of keys only names and grants. Needs the permission admin everywhere."""
    caller.need_everywhere("admin")
    return answer(request, TopologyView(await request.drive_listing(caller, request.verbs.export_topology())))


@router.post("", operation_id="apply_topology", **doc(Applied, ApplyTopology, more=(404, 409, 507)))
async def apply_topology(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Make the tenant as the topology says, as one unit. Needs the permission admin everywhere."""
    caller.need_everywhere("admin")
    body: ApplyTopology = await request.read(APPLY_TOPOLOGY)
    if about_the_store(body.topology) and not await request.server.of_all_tenants(caller):
        raise Forbidden("it has an entry about the whole store", hint="use a key of all tenants")
    steps = request.verbs.apply_data(msgspec.to_builtins(body.topology), dry_run=body.dry_run, prune=body.prune)
    return answer(request, await request.drive(steps))


@router.get("/schema", operation_id="topology_schema", **doc(TopologySchema))
async def schema(request: CurrentRequest, _caller: CurrentCaller) -> Response:
    """The JSON Schema of topology files."""
    return answer(request, TopologySchema(topology_schema()))
