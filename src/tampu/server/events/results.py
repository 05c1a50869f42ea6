"""The result of a message, waited for: until it has ended, the time is over, or the caller has to go."""

from __future__ import annotations

import asyncio
from typing import Any

from tampu.broker import validate
from tampu.model.message import Message
from tampu.model.states import TERMINAL
from tampu.server.auth.grants import Who
from tampu.server.http.long_polls import GONE, REVOKED, Poll, PollOver
from tampu.server.http.request import Disconnected, HttpRequest


async def wait_for(request: HttpRequest, who: Who, id: str, seconds: float) -> Message:
    """The message when it has ended, or as it is when the time is over."""
    node, verbs = request.node, request.node.verbs(who.tenant)
    if not seconds:
        return await node.drive(verbs.get(id))
    wanted = validate.id_text(id)
    future = await node.ends.expect(who.tenant, wanted)
    poll = Poll(who)
    left: asyncio.Future[Any] = asyncio.ensure_future(request.left())
    left.add_done_callback(lambda _: poll.end(GONE))
    node.polls.join(poll)
    try:
        message = await node.drive(verbs.get(wanted))  # only now: what ends after it is told
        if message.state not in TERMINAL and await poll.until(future, seconds):
            message = await node.drive(verbs.get(wanted))
        return message
    except PollOver as over:
        if over.why == GONE:
            raise Disconnected from None
        if over.why == REVOKED:
            await request.readmit()
        return await node.drive(verbs.get(wanted))
    finally:
        left.cancel()
        node.polls.leave(poll)
        node.ends.forget(who.tenant, wanted, future)
