"""Operating on messages: cancel, free, replay, purge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Response

from tampu.broker import validate
from tampu.model.errors import NotFound
from tampu.model.message import Message
from tampu.model.outcome import Outcome
from tampu.model.reviews import is_held_for_review
from tampu.server.auth.grants import Caller
from tampu.server.http.message_handlers import outcome_view
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest
from tampu.server.routes.common import CurrentCaller, CurrentRequest, QueueName, answer, view_for
from tampu.wire import bodies

router = APIRouter(prefix="/v1", tags=["operations"])
_IDS: dict[str, Any] = doc(bodies.Outcomes, bodies.Ids, more=(409, 507))


async def _each(
    request: HttpRequest, caller: Caller, permissions: tuple[str, ...], act: Callable[..., Any]
) -> Response:
    """Apply ``act`` to messages by id. A message that the caller has no permission for counts as not found."""
    caller.need_somewhere(*permissions)
    body: bodies.Ids = await request.read(bodies.IDS)
    await request.spend(caller, request.check_batch(body.ids, "ids"))
    ids = [validate.id_text(id) for id in body.ids]
    request.subject.add(ids=ids)
    hidden = await hidden_of(request, caller, permissions, ids)
    outcomes: list[Outcome] = await request.drive(act(*(id for id in ids if id not in hidden)))
    found = iter(outcomes)
    missing = {id: Outcome(id, None, NotFound(f"no message {id}", field="id")) for id in hidden}
    return answer(request, bodies.Outcomes([outcome_view(missing.get(id) or next(found)) for id in ids]))


async def charge_moved(request: HttpRequest, caller: Caller, transition: int) -> None:
    """Charge moved messages, except the one already charged. At most a burst, or a purge could block for a day."""
    await request.charge(caller, min(transition, request.server.limits.most(caller, transition)) - 1)


async def hidden_of(request: HttpRequest, caller: Caller, permissions: tuple[str, ...], ids: list[str]) -> set[str]:
    """The ids of messages that the caller has none of these permissions for.

    ``review`` is not enough for a message that waits for a review: that is decided, see `tampu.server.routes.reviews`.
    """
    if any(caller.everywhere(each) for each in permissions if each != "review"):
        return set()

    def may(message: Message) -> bool:
        decided = message.body.review is not None or is_held_for_review(message.reason)
        return any(caller.may(each, message.queue) for each in permissions if each != "review" or not decided)

    def find() -> set[str]:
        found = (request.server.core.engine.get(caller.tenant, id) for id in set(ids))
        return {message.id for message in found if message is not None and not may(message)}

    return await request.server.listings.call(caller, find)


@router.post("/messages/cancel", operation_id="cancel", **_IDS)
async def cancel(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Cancel waiting messages; for a leased one, ask its worker to stop."""
    return await _each(request, caller, ("operate",), request.verbs.cancel)


@router.post("/messages/free", operation_id="free", **_IDS)
async def free(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Free held messages: they become ready."""
    return await _each(request, caller, ("operate", "review"), request.verbs.free)


@router.post(
    "/queues/{queue}/replay",
    operation_id="replay",
    **doc(bodies.ReplayedView, bodies.Replay, more=(404, 409, 507)),
)
async def replay(queue: QueueName, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Run dead messages again, from attempt 0, with the same id.

    The answer has at most 8 MB of messages; with a ``cursor`` there are more: send it as ``after``. A message that dies
    again meanwhile comes after the cursor. To replay each once, get the ids with ``dry_run`` first.
    """
    caller.need("operate", queue)
    body: bodies.Replay = await request.read(bodies.REPLAY)
    await request.spend(caller, 1)
    done, cursor = await request.drive(
        request.verbs.replay_page(
            queue, ids=body.ids, where=body.where, limit=body.limit, after=body.after, dry_run=body.dry_run
        )
    )
    await charge_moved(request, caller, 0 if done.dry_run else len(done.messages))
    request.subject.add(ids=(m.id for m in done.messages))
    form = request.response_media
    return answer(
        request,
        bodies.ReplayedView(
            [view_for(caller, m, form) for m in done.messages],
            [outcome_view(o) for o in done.outcomes],
            done.dry_run,
            cursor,
        ),
    )


@router.post("/queues/{queue}/purge", operation_id="purge", **doc(bodies.Count, bodies.Purge, more=(404, 409, 507)))
async def purge(queue: QueueName, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Remove all messages in the given states for good. Returns their number."""
    caller.need("operate", queue)
    body: bodies.Purge = await request.read(bodies.PURGE)
    await request.spend(caller, 1)
    steps = request.verbs.purge(queue, state=body.states, dry_run=body.dry_run)
    count: int = await request.drive(steps)
    await charge_moved(request, caller, 0 if body.dry_run else count)
    return answer(request, bodies.Count(count))
