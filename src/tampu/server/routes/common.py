"""Parameters that routes share, and how they respond."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Path, Request, Response

from tampu.model.message import Message
from tampu.model.times import moment
from tampu.server.auth.grants import Caller
from tampu.server.http.request import KEY, HttpRequest, Reply
from tampu.wire.messages import MessageView, message_view


def _request(request: Request) -> HttpRequest:
    found: HttpRequest = request.scope[KEY]
    return found


async def _caller(request: Request) -> Caller:
    return await _request(request).admit()


CurrentRequest = Annotated[HttpRequest, Depends(_request)]
"""The request."""
CurrentCaller = Annotated[Caller, Depends(_caller)]
"""The authenticated caller; without one the route is not called."""
QueueName = Annotated[str, Path(description="Name of the queue")]


def view_for(caller: Caller, m: Message, form: str) -> MessageView:
    """The message; without its content if the caller may not view it."""
    if caller.may("view", m.queue):
        return message_view(m, form)
    return MessageView(
        m.id, m.tenant, m.queue, m.state, m.body.type, m.body.content_type, m.attempts, m.max_attempts,
        moment(m.created_us), duplicate=m.duplicate,
    )  # fmt: skip


def respond(reply: Reply) -> Response:
    response = Response(reply.body, reply.status)
    response.raw_headers = reply.headers
    return response


def answer(request: HttpRequest, value: Any, status: int = 200) -> Response:
    return respond(request.answer(value, status))
