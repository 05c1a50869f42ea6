"""The application: FastAPI routes, wrapped by `AsgiApp`, which handles the most frequent verbs itself."""

from __future__ import annotations

import functools
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import tampu
from tampu.model.errors import Forbidden, InvalidMessage, NotFound, TampuError, Unauthorized
from tampu.server.console import page as console_page
from tampu.server.http import message_handlers, openapi
from tampu.server.http.asgi import AsgiApp
from tampu.server.http.request import KEY, HttpRequest, internal_error, refused
from tampu.server.routes import (
    admin,
    agents,
    atomic,
    console,
    dead,
    definitions,
    erasures,
    events,
    health,
    keys,
    mcp,
    messages,
    queues,
    reviews,
    schedules,
    session,
    spark,
    topology,
    verbs,
)
from tampu.server.routes.common import respond
from tampu.server.server_state import ServerState
from tampu.wire.problems import MethodNotAllowed

ROUTERS = (
    verbs.router, atomic.router, messages.router, messages.notes, queues.router, admin.router, schedules.router,
    agents.router, agents.followers, definitions.router, topology.router, erasures.router, reviews.router,
    events.router, spark.router,
    keys.router, session.router, dead.router, health.router, console.router, console.pages,
    mcp.router,
)  # fmt: skip


def make_app(server: ServerState) -> AsgiApp:
    return AsgiApp(server, framework(), message_handlers.EXACT, message_handlers.OF_QUEUE)


@functools.cache
def framework() -> FastAPI:
    """The routes. They find their `ServerState` in the request, so one instance serves all servers of a process."""
    app = FastAPI(
        title="tampu",
        version=tampu.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        redirect_slashes=False,  # such a redirect names the visitor's Host, and http
        default_response_class=Response,
    )
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(TampuError, _refused)
    app.add_exception_handler(RequestValidationError, _bad_parameter)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _defect)
    app.openapi = lambda: openapi.describe(app, tampu.__version__)  # type: ignore[method-assign]  # as FastAPI documents
    return app


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, TampuError)
    http_request: HttpRequest = request.scope[KEY]
    reply = respond(refused(http_request.server, http_request.id, error))
    if b"text/html" not in http_request.headers.get(b"accept", b""):
        return reply
    page = console_page.refused(console_page.root_of(request.scope), http_request.caller, error)  # a person reads it
    page.headers.update({name: value for name, value in reply.headers.items() if not name.startswith("content-")})
    return page


async def _defect(request: Request, _error: Exception) -> Response:
    """Not logged here: the framework raises the error again, and `AsgiApp` logs it."""
    return await _refused(request, internal_error())


async def _bad_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first: dict[str, Any] = error.errors()[0]
    name = str(first["loc"][-1]) if first["loc"] else None
    return await _refused(request, InvalidMessage(f"{name}: {first['msg']}", field=name))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kinds: dict[int, type[TampuError]] = {401: Unauthorized, 403: Forbidden, 404: NotFound, 405: MethodNotAllowed}
    kind = kinds.get(error.status_code, InvalidMessage)
    text = {404: f"no route {request.url.path}", 405: f"this route does not support {request.method}"}
    response = await _refused(request, kind(text.get(error.status_code, str(error.detail))))
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response
