"""Health, readiness and metrics, for load balancers and Prometheus."""

from __future__ import annotations

import asyncio
import time

import msgspec
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from tampu.engines import port
from tampu.model.errors import TampuError
from tampu.server.auth.grants import Caller
from tampu.server.auth.origin import is_local
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest
from tampu.server.routes.common import CurrentRequest, answer
from tampu.server.server_state import STALE_SECONDS
from tampu.wire import bodies

router = APIRouter(tags=["health"])
_ANSWER_SECONDS = 10.0


class Health(msgspec.Struct):
    status: str


class Ready(msgspec.Struct):
    """``checks`` says what is wrong: ``bad`` if the server is not ready, ``warn`` if it takes no messages but settles
    leases. ``GET /v1/check`` has more details."""

    ready: bool
    durability: str
    schema: int
    atomic: str
    """How units become visible: ``isolated`` or ``eventual``."""
    checks: list[bodies.CheckItem]


@router.get("/health", operation_id="health", **doc(Health))
async def health(request: CurrentRequest) -> Response:
    """OK if the process answers."""
    return answer(request, Health("ok"))


_READY = doc(Ready, also=(503,))


@router.get("/ready", operation_id="ready", **_READY)
async def ready(request: CurrentRequest) -> Response:
    """True if the store answers, maintenance runs and the node is not stopping. Another schema is refused at start."""
    server = request.server
    checks = []
    try:
        if await asyncio.wait_for(asyncio.to_thread(_asked, server.core.engine), _ANSWER_SECONDS):
            checks.append(bodies.CheckItem("space", "warn", "the disk is full: only settling and removing work"))
    except (TampuError, TimeoutError):
        checks.append(bodies.CheckItem("store", "bad", "cannot be reached"))
    if server.polls.stopping:
        checks.append(bodies.CheckItem("node", "bad", "is stopping"))
    if server.settings.maintenance and not server.maintenance_alive:
        checks.append(bodies.CheckItem("maintenance", "bad", "does not run"))
    if time.monotonic() - server.watched_at > STALE_SECONDS:
        checks.append(bodies.CheckItem("watch", "bad", "changes of keys and settings are not followed"))
    engine = server.core.engine
    is_ready = all(check.level != "bad" for check in checks)
    reply = Ready(is_ready, engine.durability, engine.schema, port.atomicity(engine), checks)
    return answer(request, reply, 200 if is_ready else 503)


def _asked(engine: port.Engine) -> bool:
    """Ask the store, and return whether its disk is full."""
    engine.revision()
    return engine.is_full()


_METRICS = doc(text="Prometheus text")
_METRICS["responses"][200]["content"] = {"text/plain": {"schema": {"type": "string"}}}


@router.get("/metrics", operation_id="metrics", **_METRICS)
async def metrics(request: CurrentRequest) -> Response:
    """Metrics for Prometheus. Queues are listed by name only to callers that may view them."""
    text = await request.server.metrics.text(None if _is_open(request) else await _limited_to(request))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def _is_open(request: HttpRequest) -> bool:
    """True for local requests. The headers are checked because requests can come through a proxy on this machine."""
    settings = request.server.settings
    return settings.public_metrics or (settings.loopback and is_local(request.headers))


async def _limited_to(request: HttpRequest) -> Caller | None:
    """The caller whose queues are shown; None for all queues of all tenants."""
    caller = await request.admit()
    caller.need_somewhere("view")
    return None if caller.everywhere("view") and await request.server.of_all_tenants(caller) else caller
