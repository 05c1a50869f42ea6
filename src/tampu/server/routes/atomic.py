"""Atomic units: several operations, all or none. Each needs the same permissions as its own route."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from tampu import tracing
from tampu.broker import validate
from tampu.broker.atomic import MOST_DOCUMENT, Document, Unit
from tampu.model.errors import NotFound
from tampu.server.auth.grants import Caller
from tampu.server.http.message_handlers import outcome_view, queues_of, settlement
from tampu.server.http.openapi import doc
from tampu.server.http.publish import new_messages, published
from tampu.server.http.request import HttpRequest
from tampu.server.routes.admin import hidden_of
from tampu.server.routes.common import CurrentCaller, CurrentRequest, answer
from tampu.wire import atomic
from tampu.wire.media import GROWTH, decode_part

router = APIRouter(prefix="/v1", tags=["messages"])
_ATOMIC = doc(atomic.AtomicReplies, atomic.AtomicJson, binary=atomic.Atomic, more=(404, 409, 422, 507))


@router.post("/atomic", operation_id="atomic", **_ATOMIC)
async def carry_out(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Carry out all operations or none: if one is refused, all are."""
    body: atomic.Atomic = await request.read_large(atomic.ATOMIC)
    await _need(request, caller, body.operations)
    items = [item for operation in body.operations for item in _items(operation)]
    await request.spend(caller, request.check_batch(items, "items"))
    await request.server.load_settings(caller.tenant, *_queues(body.operations))
    unit = Unit(request.verbs)
    replies = await request.off_loop(_add_all, request, caller, unit, body.operations)
    await request.drive(unit.steps(body.name))
    form = request.response_media
    views = []
    for operation, reply in zip(body.operations, replies, strict=True):
        views.append(_view(caller, operation, reply.value, form))
        if isinstance(operation, atomic.AtomicSettle):
            request.server.metrics.settle(caller.tenant, [operation], [reply.value])
        elif isinstance(operation, atomic.AtomicPublish | atomic.AtomicPublishJson):
            request.server.metrics.publish(caller.tenant, operation.queue, len(reply.value))
    return answer(request, atomic.AtomicReplies(views))


async def _need(request: HttpRequest, caller: Caller, operations: list[Any]) -> None:
    """Check the permissions. A message that the caller has no permission for counts as not found."""
    for operation in operations:
        if isinstance(operation, atomic.AtomicPublish | atomic.AtomicPublishJson):
            caller.need("publish", validate.name(operation.queue, "queue"))
        elif isinstance(operation, atomic.AtomicSettle):
            queues_of(caller, [operation.receipt])
        elif isinstance(operation, atomic.AtomicCancel | atomic.AtomicFree):
            permissions = ("operate",) if isinstance(operation, atomic.AtomicCancel) else ("operate", "review")
            caller.need_somewhere(*permissions)
            ids = [validate.id_text(id) for id in operation.ids]
            for id in await hidden_of(request, caller, permissions, ids):
                raise NotFound(f"no message {id}", field="id")
        else:  # documents belong to the whole tenant
            caller.need_everywhere("operate")


def _items(operation: Any) -> list[Any]:
    for field in ("messages", "ids"):
        found: list[Any] | None = getattr(operation, field, None)
        if found is not None:
            return found
    return [operation]


def _queues(operations: list[Any]) -> set[str]:
    queues = {operation.queue for operation in operations if hasattr(operation, "queue")}
    return queues | {operation.receipt.rpartition("/")[0] for operation in operations if hasattr(operation, "receipt")}


def _add_all(request: HttpRequest, caller: Caller, unit: Unit, operations: list[Any]) -> list[Any]:
    return [_add(request, caller, unit, operation) for operation in operations]


def _add(request: HttpRequest, caller: Caller, unit: Unit, operation: Any) -> Any:
    server, media = request.server, request.media
    if isinstance(operation, atomic.AtomicPublish | atomic.AtomicPublishJson):
        most = server.max_payload(caller.tenant, operation.queue)
        news = tracing.carrying(new_messages(operation.messages, most), request.trace)
        return unit.publish_many(operation.queue, news)
    if isinstance(operation, atomic.AtomicSettle):
        return unit.settle(settlement(server, caller, operation, media))
    if isinstance(operation, atomic.AtomicCancel):
        return unit.cancel(*operation.ids)
    if isinstance(operation, atomic.AtomicFree):
        return unit.free(*operation.ids)
    if isinstance(operation, atomic.AtomicPutDocument):
        value = decode_part(operation.value, media, MOST_DOCUMENT, "value", GROWTH)
        return unit.put_document(operation.kind, operation.name, value, version=operation.version)
    return unit.delete_document(operation.kind, operation.name)


def _view(caller: Caller, operation: Any, value: Any, form: str) -> atomic.AtomicReply:
    if isinstance(operation, atomic.AtomicPublish | atomic.AtomicPublishJson):
        return atomic.AtomicReply(messages=[published(caller, message, form) for message in value])
    if isinstance(operation, atomic.AtomicSettle):
        return atomic.AtomicReply(outcomes=[outcome_view(value)])
    if isinstance(operation, atomic.AtomicPutDocument):
        return atomic.AtomicReply(version=value)
    if isinstance(operation, atomic.AtomicDeleteDocument):
        return atomic.AtomicReply(deleted=value)
    return atomic.AtomicReply(outcomes=[outcome_view(outcome) for outcome in value])


@router.get("/documents/{kind}/{name}", operation_id="get_document", **doc(atomic.DocumentView, more=(404,)))
async def get_document(kind: str, name: str, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """A document that an atomic unit has written."""
    caller.need_everywhere("view")
    found: Document | None = await request.drive(request.verbs.get_document(kind, name))
    if found is None:
        raise NotFound(f"no document {name} of kind {kind}", field="name")
    return answer(request, atomic.DocumentView(found.kind, found.name, found.version, found.value))
