"""Erasures: remove all messages of a subject. They are about all queues, so they need the permission admin."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from tampu.model.erasure import Erasure
from tampu.server.http.openapi import doc
from tampu.server.routes.common import CurrentCaller, CurrentRequest, answer
from tampu.wire.erasure import ERASE, Erase, Erasures

router = APIRouter(prefix="/v1/erasures", tags=["erasures"])
Id = Annotated[str, Path(description="Id of the erasure")]


@router.get("", operation_id="list_erasures", **doc(Erasures))
async def list_erasures(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """All erasures, the oldest first. Needs the permission admin in all queues, as the routes below."""
    caller.need_everywhere("admin")
    return answer(request, Erasures(await request.drive_listing(caller, request.verbs.list_erasures())))


@router.post("", operation_id="erase", **doc(Erasure, Erase, more=(409, 507)))
async def erase(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Remove all messages of a subject for good, in every queue and state."""
    caller.need_everywhere("admin")
    body: Erase = await request.read(ERASE)
    steps = request.verbs.erase(
        label=body.label, key=body.key, correlation_id=body.correlation_id, path=body.path, dry_run=body.dry_run
    )
    return answer(request, await request.drive_listing(caller, steps))


@router.get("/{id}", operation_id="get_erasure", **doc(Erasure, more=(404,)))
async def get_erasure(id: Id, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """The report of an erasure."""
    caller.need_everywhere("admin")
    return answer(request, await request.drive_listing(caller, request.verbs.get_erasure(id)))


@router.post("/{id}/check", operation_id="check_erasure", **doc(Erasure, more=(404,)))
async def check_erasure(id: Id, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """What there is of the subject now: nothing, if all is gone."""
    caller.need_everywhere("admin")
    return answer(request, await request.drive_listing(caller, request.verbs.check_erasure(id)))
