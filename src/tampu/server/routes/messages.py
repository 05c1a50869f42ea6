"""Reading: one message, its result and note, the messages of a queue, traces, the journal, the caller, checks."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Response

import tampu
from tampu.broker.admin.filters import Where
from tampu.broker.trace_verbs import MOST
from tampu.engines import port
from tampu.model.decoders import from_json
from tampu.model.errors import InvalidMessage, NotFound, TampuError
from tampu.model.journal import JournalPage, Position
from tampu.model.message import Message, State
from tampu.model.states import TERMINAL
from tampu.model.trace import Trace
from tampu.server.auth.grants import Caller
from tampu.server.events import positions
from tampu.server.http.message_handlers import wait_for_result
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest
from tampu.server.routes.common import CurrentCaller, CurrentRequest, QueueName, answer
from tampu.wire import bodies
from tampu.wire.messages import MessageView, message_view
from tampu.wire.problems import item_error

router = APIRouter(prefix="/v1", tags=["reading"])
notes = APIRouter(prefix="/v1", tags=["workers"])
_MOST_NOTE = 256 << 10
"""Bytes of a body with a note: more than a note may have, in any encoding."""
_POSITION = re.compile(r"([A-Za-z0-9_.:@/-]{1,300})=(\d{1,18})\Z")
"""A partition is a number, or ``tenant/queue`` if each queue has its own."""
_read_labels = from_json(dict[str, str]).decode
Limit = Annotated[int, Query(ge=1, le=10_000, description="Messages per page")]
Moment = Annotated[datetime | None, Query(description="With its time zone")]


async def find(request: HttpRequest, caller: Caller, id: str, *permissions: str) -> Message:
    """A message. Without one of these permissions in its queue it counts as not found."""
    message: Message = await request.drive(request.verbs.get(id))
    request.subject.add((message.queue,))
    if not any(caller.may(permission, message.queue) for permission in permissions):
        raise NotFound(f"no message {message.id}", field="id")
    return message


@router.get("/messages/{id}", operation_id="get", **doc(MessageView, more=(404,)))
async def get(id: str, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """One message in its current state, with its failed attempts and its result."""
    return answer(request, message_view(await find(request, caller, id, "view"), request.response_media))


@router.get("/messages/{id}/result", operation_id="result", **doc(bodies.ResultView, more=(404,)))
async def result(
    id: str,
    request: CurrentRequest,
    caller: CurrentCaller,
    wait: Annotated[float, Query(ge=0, le=3600, description="Seconds to wait until the message has ended")] = 0,
) -> Response:
    """The result of a message; with ``wait``, wait until it has ended."""
    message = await find(request, caller, id, "view")
    if wait:
        message = await wait_for_result(request, caller, id, min(wait, request.server.settings.max_wait))
    view = message_view(message, request.response_media)
    ended = message.state in TERMINAL
    return answer(
        request,
        bodies.ResultView(
            message.id, message.state, ended, view.result, view.result_base64, message.reason, message.last_error
        ),
    )


@router.get("/queues/{queue}/messages", operation_id="messages", **doc(bodies.MessagesView, more=(404,)))
async def messages(
    queue: QueueName,
    request: CurrentRequest,
    caller: CurrentCaller,
    state: Annotated[State | None, Query(description="Only this state")] = None,
    limit: Limit = 100,
    after: Annotated[str | None, Query(max_length=2000, description="The cursor of the previous page")] = None,
    type: str | None = None,
    reason: str | None = None,
    error: Annotated[str | None, Query(description="Text that the last error contains")] = None,
    key: str | None = None,
    group: str | None = None,
    correlation_id: str | None = None,
    labels: Annotated[str | None, Query(description="A JSON object of strings; all must match")] = None,
    created_after: Moment = None,
    created_before: Moment = None,
    ended_after: Moment = None,
    ended_before: Moment = None,
) -> Response:
    """One page of the messages of a queue, in queue order."""
    caller.need("view", queue)
    where = Where(
        type, reason, error, key, group, correlation_id, _labels(labels), created_after, created_before, ended_after,
        ended_before,
    )  # fmt: skip
    steps = request.verbs.messages(queue, state=state, limit=limit, after=after, where=where)
    page = await request.drive_listing(caller, steps, lambda page: len(page.messages))
    form = request.response_media
    return answer(request, bodies.MessagesView([message_view(m, form) for m in page.messages], page.cursor))


def _labels(given: str | None) -> dict[str, str] | None:
    try:
        return None if given is None else _read_labels(given)
    except msgspec.MsgspecError as error:
        raise InvalidMessage(f"labels must be a JSON object of strings: {error}", field="labels") from None


@router.get("/traces/{id:path}", operation_id="trace", **doc(Trace, more=(404,)))
async def trace(
    id: Annotated[str, Path(description="A correlation id, or the id of a message")],
    request: CurrentRequest,
    caller: CurrentCaller,
    limit: Annotated[int, Query(ge=1, le=MOST, description="Messages at most")] = 500,
) -> Response:
    """The story of the messages that share a correlation id, across the queues that the caller may view."""
    caller.need_somewhere("view")
    found: Trace = await request.drive_listing(caller, request.verbs.trace(id, limit=limit), len)
    seen = [message for message in found if caller.may("view", message.queue)]
    if not seen:
        raise NotFound(f"no message with the correlation id {id}", field="correlation_id")
    known = {message.id for message in seen}
    shown = [m if m.cause is None or m.cause in known else msgspec.structs.replace(m, cause=None) for m in seen]
    return answer(request, Trace(found.correlation_id, shown, found.complete))


@router.get("/journal", operation_id="journal", **doc(bodies.JournalView))
async def journal(
    request: CurrentRequest,
    caller: CurrentCaller,
    after: Annotated[list[str], Query(description="partition=offset, from the previous page")] = [],  # noqa: B006 - read only
    limit: Annotated[int, Query(ge=1, le=100_000, description="Transitions per page")] = 1000,
    details: Annotated[bool, Query(description="With the type and correlation id of each message")] = False,
) -> Response:
    """Transitions in order, of the queues that the caller may view."""
    caller.need_somewhere("view")
    position: dict[str, int] = {}
    for text in after:
        found = _POSITION.match(text)
        if found is None:
            raise InvalidMessage("after must be partition=offset", field="after")
        position[found[1]] = int(found[2])
    verbs = request.verbs
    if caller.everywhere("view"):
        steps = verbs.journal(after=position if after else None, limit=limit, details=details)
        page: JournalPage = await request.drive_listing(caller, steps, _transitions)
        return answer(request, bodies.JournalView(page.transitions, page.position, page.latest))
    latest: Position = (await request.drive(verbs.journal(limit=1))).latest
    # Skip partitions that the caller may not view, so that they do not fill its pages.
    begin = {p: position.get(p, 0) if positions.is_seen_by(caller, p) else offset for p, offset in latest.items()}
    steps = verbs.journal(after=begin, limit=limit, details=details)
    page = await request.drive_listing(caller, steps, _transitions)
    seen = [transition for transition in page.transitions if caller.may("view", transition.queue)]
    view = bodies.JournalView(seen, positions.seen_by(caller, page.position), positions.seen_by(caller, page.latest))
    return answer(request, view)


def _transitions(page: JournalPage) -> int:
    return len(page.transitions)


@router.get("/me", operation_id="me", **doc(bodies.Me))
async def me(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """The caller, its permissions, and facts about the server."""
    engine = request.server.core.engine
    reply = bodies.Me(
        caller.tenant, caller.name, caller.permissions, engine.durability, tampu.__version__, port.atomicity(engine),
        [one for one in caller.permissions if caller.everywhere(one)], await request.server.of_all_tenants(caller),
    )  # fmt: skip
    return answer(request, reply)


@router.get("/check", operation_id="check", **doc(bodies.Checks))
async def check(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """What `tampu doctor` finds about the queues of the tenant; for keys of all tenants also about the store."""
    caller.need_everywhere("operate")
    verbs = request.verbs
    steps = verbs.check() if await request.server.of_all_tenants(caller) else verbs.check_tenant()
    found: list[Any] = await request.drive_listing(caller, steps)
    return answer(request, bodies.Checks([bodies.CheckItem(*row) for row in found]))


# -- notes that workers keep about their messages: a cursor, their progress


@notes.get("/messages/{id}/note", operation_id="read_note", **doc(bodies.NoteView, more=(404,)))
async def read_note(id: str, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """The note of a message, such as its worker's progress."""
    message = await find(request, caller, id, "view", "consume")
    return answer(request, bodies.NoteView(await request.drive(request.verbs.read_note(message.id))))


@notes.put("/messages/{id}/note", operation_id="write_note", **doc(bodies.Noted, bodies.Note, more=(404, 507)))
async def write_note(id: str, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Replace the note and extend the lease. ``error`` in the response says if the lease was lost."""
    message = await find(request, caller, id, "consume")
    body: bodies.Note = await request.read(bodies.NOTE, _MOST_NOTE)
    try:
        await request.drive(request.verbs.write_note(message.id, body.receipt, body.note, body.by))
    except TampuError as error:
        return answer(request, bodies.Noted(item_error(error)))
    return answer(request, bodies.Noted())


@notes.delete("/messages/{id}/note", operation_id="drop_note", **doc(bodies.Count, more=(404, 507)))
async def drop_note(id: str, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Remove the note of a message that has ended; the note of a live message stays."""
    message = await find(request, caller, id, "consume")
    if message.state not in TERMINAL:
        return answer(request, bodies.Count(0))
    await request.drive(request.verbs.drop_notes([message.id]))
    return answer(request, bodies.Count(1))
