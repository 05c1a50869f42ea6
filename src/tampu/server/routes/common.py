"""What routes are given of a request, and how they answer it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Path, Request, Response

from tampu.server.auth.grants import Who
from tampu.server.http.request import KEY, HttpRequest, Reply


def _call(request: Request) -> HttpRequest:
    call: HttpRequest = request.scope[KEY]
    return call


async def _who(request: Request) -> Who:
    return await _call(request).admit()


Asks = Annotated[HttpRequest, Depends(_call)]
"""The request."""
Caller = Annotated[Who, Depends(_who)]
"""Who asks; without a key that holds, the route is not reached."""
QueueName = Annotated[str, Path(description="The queue")]


def respond(reply: Reply) -> Response:
    response = Response(reply.body, reply.status)
    response.raw_headers = reply.headers
    return response


def answer(call: HttpRequest, value: Any, status: int = 200) -> Response:
    return respond(call.answer(value, status))
