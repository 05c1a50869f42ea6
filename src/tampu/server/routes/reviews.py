"""Reviews: list, get, claim, decide, comment, reassign, preview, and asking for one.

The permission review, in the queue of the message, lets a key decide. If its grants name roles, only reviews of these
roles. A key acts under its own name; to act for a person it also needs the permission operate.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from tampu.broker import queue_cursor, validate
from tampu.broker.policies.reviews.patterns import PATTERNS
from tampu.broker.policies.reviews.stored import Found
from tampu.model.errors import Forbidden, NotFound
from tampu.model.reviews import ReviewPage, ReviewPreview, ReviewRecord
from tampu.server.auth.grants import Caller
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest
from tampu.server.routes.common import CurrentCaller, CurrentRequest, answer
from tampu.wire import reviews as wire

router = APIRouter(prefix="/v1/reviews", tags=["reviews"])
Id = Annotated[str, Path(description="The id of its message")]
_CHANGE = (404, 409, 507)


def may_decide(caller: Caller, queue: str, roles: tuple[str, ...]) -> bool:
    own = caller.roles_in(queue)
    return caller.may("review", queue) and (own is None or not roles or not own.isdisjoint(roles))


async def find_review(request: HttpRequest, caller: Caller, id: str, *, decide: bool) -> Found:
    """A review that the caller may view, or decide. One that it may not view counts as not found."""
    caller.need_somewhere("review", *([] if decide else ["view"]))
    found: Found = await request.drive(request.verbs.find_review(id))
    queue = None if found.message is None else found.message.queue
    own = queue is not None and may_decide(caller, queue, found.roles)
    if queue is None or not (own or caller.may("view", queue)):
        raise NotFound(f"message {id} has no review", field="id")
    if decide and not own:
        raise Forbidden("this key may not decide this review", hint="use a key with the permission review for it")
    request.subject.add(ids=[found.id])
    await request.server.load_settings(caller.tenant, queue)
    return found


def _person(caller: Caller, found: Found, by: str | None) -> str | None:
    assert found.message is not None
    if by not in (None, caller.name) and not caller.may("operate", found.message.queue):
        raise Forbidden(
            f"this key acts as {caller.name}, not as somebody else",
            field="by",
            hint="leave by out, or use a key with the permission operate",
        )
    return by


@router.get("", operation_id="list_reviews", **doc(ReviewPage))
async def list_reviews(
    request: CurrentRequest,
    caller: CurrentCaller,
    role: str | None = None,
    assignee: str | None = None,
    queue: str | None = None,
    pattern: str | None = None,
    after: Annotated[
        str | None, Query(max_length=queue_cursor.MOST_CHARACTERS, description="The cursor of the previous page")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Open reviews: queue by queue, in each the oldest message first."""
    caller.need_somewhere("review", "view")

    def may(name: str) -> bool:
        return caller.may("review", name) or caller.may("view", name)

    steps = request.verbs.open_reviews(role, assignee, queue, pattern, after, limit, may)
    found: ReviewPage = await request.drive_listing(caller, steps, len)
    shown = [one for one in found if caller.may("view", one.queue) or may_decide(caller, one.queue, one.roles)]
    return answer(request, ReviewPage(shown, found.cursor))


@router.post("", operation_id="ask_review", **doc(wire.AskedReview, wire.AskReview, more=_CHANGE))
async def ask_review(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """A worker gives a message back, held until a person has decided. The attempt does not count."""
    caller.need_somewhere("consume")
    body: wire.AskReview = await request.read(wire.ASK)
    queue = validate.name(body.receipt.rpartition("/")[0], "receipt")
    caller.need("consume", queue)
    await request.spend(caller, 1)
    await request.server.load_settings(caller.tenant, queue)
    await request.drive(request.verbs.ask_review(body.receipt, body.review, reason=body.reason, id=body.id))
    return answer(request, wire.AskedReview(body.id))


@router.post("/preview", operation_id="preview_review", **doc(ReviewPreview, wire.PreviewReview, more=(404,)))
async def preview_review(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """What a reviewer would see of a message with this payload. Nothing is stored."""
    caller.need_somewhere("view")
    body: wire.PreviewReview = await request.read(wire.PREVIEW)
    if isinstance(body.pattern, str):
        found = await request.drive(request.verbs.get_pattern(body.pattern))
        if not all(caller.may_all("view", place) for place in PATTERNS.places(found)):
            raise NotFound(f"no pattern {body.pattern}", field="pattern")
    await request.server.load_settings(caller.tenant, validate.name(body.queue, "queue"))
    steps = request.verbs.preview_review(
        body.pattern, body.payload, queue=body.queue, type=body.type, labels=body.labels, headers=body.headers,
        parameters=body.parameters,
    )  # fmt: skip
    return answer(request, await request.drive(steps))


@router.get("/{id}", operation_id="get_review", **doc(ReviewRecord, more=(404,)))
async def get_review(id: Id, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """One review, with what the reviewer sees."""
    found = await find_review(request, caller, id, decide=False)
    return answer(request, await request.drive(request.verbs.get_review(found.id)))


async def _change(request: HttpRequest, caller: Caller, id: str, form: Any) -> tuple[Found, Any, str | None]:
    """(the review, the body, the person)"""
    found = await find_review(request, caller, id, decide=True)
    body = await request.read(form)
    await request.spend(caller, 1)
    return found, body, _person(caller, found, body.by)


@router.post("/{id}/claim", operation_id="claim_review", **doc(ReviewRecord, wire.ClaimReview, more=_CHANGE))
async def claim_review(id: Id, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """This person works on it: nobody else can decide, until it is reassigned."""
    found, _, by = await _change(request, caller, id, wire.CLAIM)
    return answer(request, await request.drive(request.verbs.claim_review(found.id, by=by)))


@router.post("/{id}/decide", operation_id="decide_review", **doc(ReviewRecord, wire.DecideReview, more=_CHANGE))
async def decide_review(id: Id, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Decide. Of several decisions at once one is taken. The same decision again changes nothing."""
    found, body, by = await _change(request, caller, id, wire.DECIDE)
    steps = request.verbs.decide_review(
        found.id, body.option, by=by, reason=body.reason, fields=body.fields, payload=body.payload
    )
    return answer(request, await request.drive(steps))


@router.post("/{id}/comment", operation_id="comment_review", **doc(ReviewRecord, wire.CommentReview, more=_CHANGE))
async def comment_review(id: Id, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Add a comment."""
    found, body, by = await _change(request, caller, id, wire.COMMENT)
    return answer(request, await request.drive(request.verbs.comment_review(found.id, body.text, by=by)))


@router.post("/{id}/reassign", operation_id="reassign_review", **doc(ReviewRecord, wire.ReassignReview, more=_CHANGE))
async def reassign_review(id: Id, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Another person, or other roles, decide."""
    found, body, by = await _change(request, caller, id, wire.REASSIGN)
    steps = request.verbs.reassign_review(found.id, body.to, roles=body.roles, by=by)
    return answer(request, await request.drive(steps))
