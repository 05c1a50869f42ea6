"""Notes that workers keep about their messages: a cursor, their progress."""

from __future__ import annotations

from fastapi import APIRouter, Response

from tampu.model.errors import TampuError
from tampu.model.states import TERMINAL
from tampu.server.http.openapi import doc
from tampu.server.routes.common import CurrentCaller, CurrentRequest, answer
from tampu.server.routes.messages import find
from tampu.wire import bodies
from tampu.wire.problems import item_error

_MOST_BODY = 256 << 10
"""More than a note may have, in any encoding."""
router = APIRouter(prefix="/v1", tags=["workers"])


@router.get("/messages/{id}/note", operation_id="read_note", **doc(bodies.NoteView, more=(404,)))
async def read_note(id: str, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """The note of a message, such as its worker's progress."""
    message = await find(request, caller, id, "view", "consume")
    return answer(
        request, bodies.NoteView(await request.server.drive(request.server.verbs(caller.tenant).read_note(message.id)))
    )


@router.put("/messages/{id}/note", operation_id="write_note", **doc(bodies.Noted, bodies.Note, more=(404, 507)))
async def write_note(id: str, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Replace the note and extend the lease. ``error`` in the response says if the lease was lost."""
    message = await find(request, caller, id, "consume")
    body: bodies.Note = await request.read(bodies.NOTE, _MOST_BODY)
    try:
        await request.server.drive(
            request.server.verbs(caller.tenant).write_note(message.id, body.receipt, body.note, body.by)
        )
    except TampuError as error:
        return answer(request, bodies.Noted(item_error(error)))
    return answer(request, bodies.Noted())


@router.delete("/messages/{id}/note", operation_id="drop_note", **doc(bodies.Count, more=(404, 507)))
async def drop_note(id: str, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Remove the note of a message that has ended; the note of a live message stays."""
    message = await find(request, caller, id, "consume")
    if message.state not in TERMINAL:
        return answer(request, bodies.Count(0))
    await request.server.drive(request.server.verbs(caller.tenant).drop_notes([message.id]))
    return answer(request, bodies.Count(1))
