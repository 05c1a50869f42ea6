"""Atomic units: several operations, all or none. Each needs the same permissions as its own route."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Response

from tampu import tracing
from tampu.broker import validate
from tampu.broker.atomic import Unit
from tampu.model.document import Document
from tampu.model.errors import NotFound
from tampu.server.auth.grants import Caller
from tampu.server.http.message_handlers import outcome_view, queues_of, settlement
from tampu.server.http.openapi import doc
from tampu.server.http.publish import new_message, published
from tampu.server.http.request import HttpRequest
from tampu.server.routes.admin import hidden_of
from tampu.server.routes.common import CurrentCaller, CurrentRequest, answer
from tampu.wire import atomic

router = APIRouter(prefix="/v1", tags=["messages"])
_ATOMIC = doc(atomic.AtomicReplies, atomic.AtomicJson, binary=atomic.Atomic, more=(404, 409, 422, 507))


@router.post("/atomic", operation_id="atomic", **_ATOMIC)
async def carry_out(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Carry out all operations or none: if one is refused, all are."""
    body: atomic.Atomic = await request.read(atomic.ATOMIC)
    await _need(request, caller, body.operations)
    items = [item for operation in body.operations for item in _items(operation)]
    await request.spend(caller, request.check_batch(items, "items"))
    await request.server.load_settings(caller.tenant, *_queues(body.operations))
    unit = Unit(request.server.verbs(caller.tenant))
    replies = [_add(request, unit, operation) for operation in body.operations]
    await request.server.drive(unit.steps(body.name))
    form = request.response_media
    views = []
    for operation, reply in zip(body.operations, replies, strict=True):
        views.append(_view(operation, reply.value, form))
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
            if not any(caller.somewhere(permission) for permission in permissions):
                caller.need_somewhere(permissions[0])
            ids = [validate.id_text(id) for id in operation.ids]
            if not any(caller.everywhere(permission) for permission in permissions):
                for id in await asyncio.to_thread(hidden_of, request, caller, permissions, ids):
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


def _add(request: HttpRequest, unit: Unit, operation: Any) -> Any:
    if isinstance(operation, atomic.AtomicPublish | atomic.AtomicPublishJson):
        news = tracing.carrying([new_message(given) for given in operation.messages], request.trace)
        return unit.publish_many(operation.queue, news)
    if isinstance(operation, atomic.AtomicSettle):
        return unit.settle(settlement(operation))
    if isinstance(operation, atomic.AtomicCancel):
        return unit.cancel(*operation.ids)
    if isinstance(operation, atomic.AtomicFree):
        return unit.free(*operation.ids)
    if isinstance(operation, atomic.AtomicPutDocument):
        return unit.put_document(operation.kind, operation.name, operation.value, version=operation.version)
    return unit.delete_document(operation.kind, operation.name)


def _view(operation: Any, value: Any, form: str) -> atomic.AtomicReply:
    if isinstance(operation, atomic.AtomicPublish | atomic.AtomicPublishJson):
        return atomic.AtomicReply(messages=[published(message, form) for message in value])
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
    found: Document | None = await request.server.drive(request.server.verbs(caller.tenant).get_document(kind, name))
    if found is None:
        raise NotFound(f"no document {name} of kind {kind}", field="name")
    return answer(request, atomic.DocumentView(found.kind, found.name, found.version, found.value))
