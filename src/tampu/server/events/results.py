"""Waiting for the result of a message: until it has ended, the timeout, or the caller's key or connection ends."""

from __future__ import annotations

import asyncio
from typing import Any

from tampu.broker import validate
from tampu.model.message import Message
from tampu.model.states import TERMINAL
from tampu.server.auth.grants import Caller
from tampu.server.http.long_polls import GONE, REVOKED, Poll, PollOver
from tampu.server.http.request import Disconnected, HttpRequest


async def wait_for(request: HttpRequest, caller: Caller, id: str, seconds: float) -> Message:
    """The message when it has ended, or as it is at the timeout."""
    server, verbs = request.server, request.server.verbs(caller.tenant)
    if not seconds:
        return await server.drive(verbs.get(id))
    message_id = validate.id_text(id)
    future = await server.completion.expect(caller.tenant, message_id)
    poll = Poll(caller)
    left: asyncio.Future[Any] = asyncio.ensure_future(request.left())
    left.add_done_callback(lambda _: poll.end(GONE))
    server.polls.join(poll)
    try:
        message = await server.drive(verbs.get(message_id))  # after `expect`, so that no end is missed
        with server.budget.polls.hold():
            ended = message.state not in TERMINAL and await poll.until(future, seconds)
        if ended:
            message = await server.drive(verbs.get(message_id))
        return message
    except PollOver as over:
        if over.why == GONE:
            raise Disconnected from None
        if over.why == REVOKED:
            await request.readmit()
        return await server.drive(verbs.get(message_id))
    finally:
        left.cancel()
        server.polls.leave(poll)
        server.completion.forget(caller.tenant, message_id, future)
