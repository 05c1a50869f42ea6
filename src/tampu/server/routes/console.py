"""The dashboard: the queues, recent failures, the messages of a queue, and one message with its timeline."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.routing import APIRoute

import tampu
from tampu.broker import validate
from tampu.broker.admin.verbs import Stats
from tampu.model.errors import InvalidMessage, NotFound, TampuError, Unauthorized
from tampu.model.message import State
from tampu.server.auth import origin
from tampu.server.auth.grants import Caller
from tampu.server.auth.sessions import CHOICE, COOKIE
from tampu.server.console import history, render
from tampu.server.http.request import KEY, MAX_ANONYMOUS_BODY, HttpRequest
from tampu.server.routes.common import CurrentCaller, CurrentRequest
from tampu.server.routes.messages import find
from tampu.server.routes.session import with_cookie
from tampu.wire.problems import problem

R = TypeVar("R")
router = APIRouter(include_in_schema=False)
_FAILURES = 15
_LISTED = 50
_SHOWN_STATES = (State.READY, State.DELAYED, State.LEASED, State.HELD, State.DONE, State.DEAD)


def _html(template: str, root: str, status: int = 200, *, tenants: Sequence[str] = (), **values: Any) -> Response:
    body = render.render(template, root=root, version=tampu.__version__, tenants=tenants, **values)
    return Response(body, status, render.HEADERS, "text/html; charset=utf-8")


async def _tenants(request: HttpRequest, caller: Caller) -> list[str]:
    """The tenants that the caller may choose from; empty for a key of one tenant."""
    if not await request.server.of_all_tenants(caller):
        return []
    found = await _read(request, caller, request.server.core.engine.queues)
    return sorted({caller.tenant, *(tenant for tenant, _ in found)})


async def _read(request: HttpRequest, caller: Caller, work: Callable[..., R], *arguments: Any) -> R:
    """Call a function that reads much; see `Listings`."""
    return await request.until_left(request.server.listings.call(caller, work, *arguments))


def _sign_in(root: str, error: str | None = None, status: int = 401) -> Response:
    return _html("signin.html", root, status, error=error)


def _refused(root: str, caller: Caller | None, error: TampuError) -> Response:
    reply = problem(error)
    return _html("refused.html", root, reply.status, caller=caller, problem=reply)


class _Page(APIRoute):
    """Shows errors as pages, and the form to whoever has to sign in first."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, root = super().get_route_handler(), "../" * (self.path.count("/") - 1)

        async def show(request: Request) -> Response:
            try:
                return await handle(request)
            except Unauthorized:
                return _sign_in(root)
            except TampuError as error:
                return _refused(root, request.scope[KEY].caller, error)

        return show


pages = APIRouter(include_in_schema=False, route_class=_Page)


@pages.get("/")
async def index(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """The queues."""
    caller.need_somewhere("view")
    stats: list[Stats] = await request.drive_listing(caller, request.verbs.stats())
    engine = request.server.core.engine
    failed = await _read(request, caller, history.failures, engine, caller.tenant, _FAILURES * 4)
    return _html(
        "index.html",
        "",
        caller=caller,
        tenants=await _tenants(request, caller),
        queues=[queue for queue in stats if caller.may("view", queue.queue)],
        states=_SHOWN_STATES,
        failures=[transition for transition in failed if caller.may("view", transition.queue)][:_FAILURES],
    )


@pages.get("/queues/{queue}")
async def queue_page(
    request: CurrentRequest, caller: CurrentCaller, queue: Annotated[str, Path()], state: State | None = None
) -> Response:
    """Messages of a queue."""
    caller.need_somewhere("view")
    caller.need("view", queue)
    stats = await request.drive(request.verbs.stats(queue))
    page = await request.drive_listing(caller, request.verbs.messages(queue, state=state, limit=_LISTED))
    return _html(
        "queue.html", "../", caller=caller, stats=stats, state=state, states=tuple(State), messages=page.messages,
        more=page.cursor is not None, tenants=await _tenants(request, caller),
    )  # fmt: skip


@router.get("/messages")
async def search(id: Annotated[str, Query(max_length=100)] = "") -> Response:
    """Redirect from the search field to the message."""
    return _redirect(f"messages/{urllib.parse.quote(id.strip(), safe='')}" if id.strip() else "./")


@pages.get("/messages/{id}")
async def message_page(request: CurrentRequest, caller: CurrentCaller, id: Annotated[str, Path()]) -> Response:
    """One message with its timeline and payload."""
    caller.need_somewhere("view")
    message = await find(request, caller, id, "view")
    await request.spend(caller, 1)
    transitions, whole = await _read(request, caller, history.timeline, request.server.core.engine, message)
    result = None if message.result_raw is None else render.value(message.result)
    return _html(
        "message.html", "../", caller=caller, message=message, payload=render.payload(message), result=result,
        transitions=transitions, whole=whole, tenants=await _tenants(request, caller),
    )  # fmt: skip


# -- sign-in and sign-out forms, which work without JavaScript


@router.post("/signin")
async def sign_in(request: CurrentRequest) -> Response:
    """Start a session with the key from the form."""
    try:
        origin.check_site(request.headers)
        key = (await _form(request)).get("key", "")
        cookie = await request.server.authenticator.sign_in_with(key, request.address)
    except TampuError as error:
        return _sign_in("", error.message, problem(error).status)
    return with_cookie(_redirect("./"), request, cookie)


@router.post("/signout")
async def sign_out(request: CurrentRequest) -> Response:
    await request.server.authenticator.sign_out(request.headers)
    response = _redirect("./")
    response.delete_cookie(COOKIE, path="/")
    response.delete_cookie(CHOICE, path="/")
    return response


@router.post("/tenant")
async def choose_tenant(request: CurrentRequest) -> Response:
    """Choose the tenant that the dashboard shows. Callers of one tenant keep their own."""
    try:
        origin.check_site(request.headers)
        chosen = validate.name((await _form(request)).get("tenant", ""), "tenant")
    except TampuError as error:
        return _refused("", None, error)
    response = _redirect("./")
    secure = origin.came_encrypted(request.headers)
    response.set_cookie(CHOICE, chosen, path="/", secure=secure, httponly=True, samesite="strict")
    return response


async def _form(request: HttpRequest) -> dict[str, str]:
    try:
        return dict(urllib.parse.parse_qsl((await request.body(MAX_ANONYMOUS_BODY)).decode("ascii"), max_num_fields=10))
    except ValueError:
        raise InvalidMessage("cannot read the form", field="body") from None


def _redirect(where: str) -> Response:
    return Response(status_code=303, headers={"location": where, "referrer-policy": "no-referrer"})


@router.get("/static/{name}")
async def static(name: str, request: Request) -> Response:
    found = render.static(name)
    if found is None:
        raise NotFound("no such file", field="name")
    content, media_type = found
    lasting = "public, max-age=31536000, immutable" if "v" in request.query_params else "no-cache"
    return Response(content, 200, {"cache-control": lasting, "x-content-type-options": "nosniff"}, media_type)
