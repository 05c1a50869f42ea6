"""Is it alive, can it work, and what does it measure; for load balancers and Prometheus."""

from __future__ import annotations

import asyncio
import time

import msgspec
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from tampu.model.errors import TampuError
from tampu.server.node import STALE_SECONDS
from tampu.server.openapi import doc
from tampu.server.routes.asking import Asks, answer
from tampu.wire import bodies

router = APIRouter(tags=["health"])
_ANSWER_SECONDS = 10.0


class Health(msgspec.Struct):
    status: str


class Ready(msgspec.Struct):
    """``checks`` says what is wrong when it is not ready; the details are for those who may operate."""

    ready: bool
    durability: str
    schema: int
    checks: list[bodies.CheckItem]


@router.get("/health", operation_id="health", **doc(Health))
async def health(call: Asks) -> Response:
    """The process answers."""
    return answer(call, Health("ok"))


_READY = doc(Ready, also=(503,))


@router.get("/ready", operation_id="ready", **_READY)
async def ready(call: Asks) -> Response:
    """The store answers, keepers run, and the node is not about to stop. A store of another schema is never opened."""
    node = call.node
    checks = []
    try:
        await asyncio.wait_for(asyncio.to_thread(node.core.engine.revision), _ANSWER_SECONDS)
    except (TampuError, TimeoutError):
        checks.append(bodies.CheckItem("store", "bad", "can not be reached"))
    if node.polls.stopping:
        checks.append(bodies.CheckItem("node", "bad", "is stopping"))
    if node.settings.keepers and not node.keepers_alive:
        checks.append(bodies.CheckItem("keepers", "bad", "do not run"))
    if time.monotonic() - node.watched_at > STALE_SECONDS:
        checks.append(bodies.CheckItem("watch", "bad", "changes of keys and settings are not followed"))
    told = Ready(not checks, node.core.engine.durability, node.core.engine.schema, checks)
    return answer(call, told, 503 if checks else 200)


@router.get(
    "/metrics",
    operation_id="metrics",
    responses={200: {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(call: Asks) -> Response:
    """Measurements, for Prometheus."""
    if not (call.node.settings.public_metrics or call.node.settings.loopback):
        who = await call.admit()
        who.need_somewhere("view")
    return Response(await call.node.metrics.text(), media_type=CONTENT_TYPE_LATEST)
