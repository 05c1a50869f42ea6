"""The routes of the console that are not pages: sign in and out, the choice of the tenant, static files, changes."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from tampu.broker import validate
from tampu.model.errors import NotFound, TampuError
from tampu.server.auth import origin
from tampu.server.auth.sessions import CHOICE, COOKIE
from tampu.server.console import page, render
from tampu.server.console.pages import PAGES
from tampu.server.events.changes import Changes
from tampu.server.http.request import MAX_ANONYMOUS_BODY
from tampu.server.routes.common import CurrentCaller, CurrentRequest
from tampu.server.routes.events import EventStream
from tampu.server.routes.session import with_cookie
from tampu.wire.problems import problem

router = APIRouter(include_in_schema=False)
pages = APIRouter(include_in_schema=False)
for _page in PAGES:
    pages.include_router(_page.router)


@router.get("/changes")
async def changes(request: CurrentRequest, caller: CurrentCaller, queue: str | None = None) -> Response:
    """Server-sent events that say which queues have changed, at most one a second; a page then loads itself again."""
    caller.need_somewhere("view")
    if queue is not None:
        caller.need("view", validate.any_queue(queue))
    feed = Changes(request.server.tail, caller, queue)
    request.server.budget.feeds.take()
    try:
        await feed.open()
    except BaseException:
        feed.close()
        request.server.budget.feeds.give()
        raise
    return EventStream(request, feed, None)


# -- sign-in and sign-out forms, which work without JavaScript


@router.post("/signin")
async def sign_in(request: CurrentRequest) -> Response:
    """Start a session with the key from the form."""
    try:
        origin.check_site(request.headers)
        key = (await page.form_of(request, MAX_ANONYMOUS_BODY)).get("key", "")
        cookie = await request.server.authenticator.sign_in_with(key, request.address)
    except TampuError as error:
        return page.sign_in("", error.message, problem(error).status)
    return with_cookie(page.redirect("./"), request, cookie)


@router.post("/signout")
async def sign_out(request: CurrentRequest) -> Response:
    await request.server.authenticator.sign_out(request.headers)
    response = page.redirect("./")
    response.delete_cookie(COOKIE, path="/")
    response.delete_cookie(CHOICE, path="/")
    return response


@router.post("/tenant")
async def choose_tenant(request: CurrentRequest) -> Response:
    """Choose the tenant that the console shows. Callers of one tenant keep their own."""
    try:
        origin.check_site(request.headers)
        form = await page.form_of(request, MAX_ANONYMOUS_BODY)
        chosen = validate.name(form.get("tenant", ""), "tenant")
    except TampuError as error:
        return page.refused("", None, error)
    response = page.redirect("./")
    secure = origin.came_encrypted(request.headers)
    response.set_cookie(CHOICE, chosen, path="/", secure=secure, httponly=True, samesite="strict")
    return response


@router.get("/static/{name}")
async def static(name: str, request: Request) -> Response:
    found = render.static(name)
    if found is None:
        raise NotFound("no such file", field="name")
    content, media_type = found
    lasting = "public, max-age=31536000, immutable" if "v" in request.query_params else "no-cache"
    return Response(content, 200, {"cache-control": lasting, "x-content-type-options": "nosniff"}, media_type)
