"""Browser sessions: sign in with a key or a sign-in link, sign out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from tampu.server.auth import origin
from tampu.server.auth.sessions import COOKIE, SESSION_SECONDS
from tampu.server.http.openapi import doc
from tampu.server.http.request import MAX_ANONYMOUS_BODY, HttpRequest
from tampu.server.routes.common import CurrentRequest, answer
from tampu.wire import bodies
from tampu.wire.media import Form

router = APIRouter(tags=["session"])


class SignInBody(bodies.RequestBody):
    key: str


SIGN_IN = Form(SignInBody)


@router.post("/v1/session", operation_id="sign_in", **doc(bodies.Deleted, SignInBody))
async def sign_in(request: CurrentRequest) -> Response:
    """Get a session cookie for a key. Too many bad keys are answered 429."""
    origin.check_site(request.headers)
    body: SignInBody = await request.read(SIGN_IN, MAX_ANONYMOUS_BODY)
    cookie = await request.server.authenticator.sign_in_with(body.key, request.address)
    return with_cookie(answer(request, bodies.Deleted(False)), request, cookie)


@router.delete("/v1/session", operation_id="sign_out", **doc(bodies.Deleted))
async def sign_out(request: CurrentRequest) -> Response:
    """End the session, also on other nodes and for copies of its cookie."""
    response = answer(request, bodies.Deleted(await request.server.authenticator.sign_out(request.headers)))
    response.delete_cookie(COOKIE, path="/")
    return response


@router.get("/signin", operation_id="sign_in_by_link", **doc(status=303, text="Signed in"))
async def sign_in_by_link(request: CurrentRequest, token: Annotated[str, Query(max_length=200)]) -> Response:
    """Sign in with the link that `tampu signin` prints. The link works once."""
    cookie = await request.server.authenticator.sign_in_by_link(token, request.address)
    response = Response(status_code=303, headers={"location": "/", "referrer-policy": "no-referrer"})
    return with_cookie(response, request, cookie)


def with_cookie(response: Response, request: HttpRequest, cookie: str) -> Response:
    secure = origin.came_encrypted(request.headers)
    response.set_cookie(
        COOKIE, cookie, max_age=SESSION_SECONDS, path="/", secure=secure, httponly=True, samesite="strict"
    )
    return response
