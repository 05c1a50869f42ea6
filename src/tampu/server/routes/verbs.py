"""Publish, claim, settle, extend: these routes are for the OpenAPI document. `AsgiApp` calls the handlers directly."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from tampu.server.http import message_handlers, raw_publish
from tampu.server.http import publish as http_publish
from tampu.server.http.openapi import doc
from tampu.server.routes.common import CurrentRequest, QueueName, respond
from tampu.wire import bodies

router = APIRouter(prefix="/v1", tags=["messages"])


def _header(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": text}


_KEY = _header("Idempotency-Key", "A repeated request with the same key finds what the first one stored")
_RAW = doc(
    bodies.Published, status=201, also=(200,), more=(408, 409, 413, 422, 507), text="Stored; 200: it existed already"
)
_RAW["openapi_extra"] = {
    "requestBody": {
        "required": True,
        "description": "The payload, of any content type",
        "content": {"*/*": {"schema": {}}},
    },
    "parameters": [
        _KEY,
        *(_header(f"Tampu-{name.replace('_', '-').title()}", f"The message's {name}") for name in raw_publish.FIELDS),
    ],
}
_MANY = doc(bodies.PublishedMany, bodies.PublishJson, binary=bodies.Publish, more=(409, 422, 507))
_MANY["openapi_extra"]["parameters"] = [_KEY]


@router.post("/queues/{queue}/messages", operation_id="publish", **_RAW)
async def publish(queue: QueueName, request: CurrentRequest) -> Response:
    """Publish one message: the body is the payload."""
    return respond(await http_publish.publish_one(request, queue))


@router.post("/queues/{queue}/publish", operation_id="publish_many", **_MANY)
async def publish_many(queue: QueueName, request: CurrentRequest) -> Response:
    """Publish messages with all their fields; all or none."""
    return respond(await http_publish.publish_many(request, queue))


@router.post("/claim", operation_id="claim", **doc(bodies.Claimed, bodies.Claim, more=(409, 507)))
async def claim(request: CurrentRequest) -> Response:
    """Lease messages from one or several queues; with ``wait``, wait for the first."""
    return respond(await message_handlers.claim(request))


@router.post("/settle", operation_id="settle", **doc(bodies.Outcomes, bodies.Settle, more=(409, 507)))
async def settle(request: CurrentRequest) -> Response:
    """End leases; each has its own outcome."""
    return respond(await message_handlers.settle(request))


@router.post("/extend", operation_id="extend", **doc(bodies.Extended, bodies.Extend, more=(409, 507)))
async def extend(request: CurrentRequest) -> Response:
    """Extend leases; each has its own outcome."""
    return respond(await message_handlers.extend(request))
