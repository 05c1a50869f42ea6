"""Handlers of claim, settle and extend, called without the framework; and the table of all such handlers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from tampu.broker import validate
from tampu.model import reasons
from tampu.model.errors import TampuError
from tampu.model.message import Lease
from tampu.model.outcome import Ack, Nack, Outcome, Reject, Release, Settlement
from tampu.model.times import SECOND, Duration, duration, moment
from tampu.server.auth.grants import Caller
from tampu.server.http.long_polls import GONE, REVOKED, Poll, PollOver
from tampu.server.http.publish import publish_many, publish_one
from tampu.server.http.request import Disconnected, Handler, HttpRequest, Reply
from tampu.server.server_state import ServerState
from tampu.wire import bodies
from tampu.wire.messages import lease_view
from tampu.wire.problems import item_error

# -- claim


async def claim(request: HttpRequest) -> Reply:
    caller = await request.admit()
    body: bodies.Claim = await request.read(bodies.CLAIM)
    queues = [body.queues] if isinstance(body.queues, str) else body.queues
    request.subject.add(queues)
    for queue in queues[:1001]:
        caller.need("consume", validate.name(queue, "queue"))
    server = request.server
    await request.spend(caller, 1)
    wait = _shorter(body.wait, server.settings.max_wait)
    await server.load_settings(caller.tenant, *queues[:1001])
    limit = min(body.limit, server.limits.most(caller, body.limit))
    steps = server.verbs(caller.tenant).claim(queues, limit=limit, lease=body.lease, wait=wait, worker=body.worker)
    leases = await (server.drive(steps) if not wait else _poll(request, caller, steps))
    await request.charge(caller, len(leases) - 1)  # the first was paid for before
    server.metrics.claim(leases, server.now_us())
    request.subject.add(ids=(lease.message.id for lease in leases))
    form = request.response_media
    return request.answer(bodies.Claimed([lease_view(lease, form) for lease in leases]))


def _shorter(wait: Duration, most: float) -> float:
    return min(duration(wait, "wait") / SECOND, most)


async def _poll(request: HttpRequest, caller: Caller, steps: Any) -> list[Lease]:
    """A claim that waits. Shutdown ends it with no messages; so do a revoked key and a lost client."""
    poll = Poll(caller)
    left = asyncio.ensure_future(request.left())
    left.add_done_callback(lambda _: poll.end(GONE))
    try:
        leases: list[Lease] = await request.server.drive(steps, poll)
        if leases and left.done():
            await request.server.release(caller, leases)
            raise Disconnected
        return leases
    except PollOver as over:
        if over.why == GONE:
            raise Disconnected from None
        if over.why == REVOKED:
            await request.readmit()  # raises, unless only the permissions changed: then the worker claims again
        return []
    finally:
        left.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await left


# -- settle and extend


async def settle(request: HttpRequest) -> Reply:
    caller = await request.admit()
    body: bodies.Settle = await request.read(bodies.SETTLE)
    count = request.check_batch(body.settlements, "settlements")
    queues = queues_of(caller, [item.receipt for item in body.settlements])
    request.subject.add(sorted(queues))
    await request.spend(caller, count)
    outcomes = await settled(request.server, caller, body.settlements, queues)
    request.subject.add(ids=(outcome.id for outcome in outcomes if outcome.id))
    return request.answer(bodies.Outcomes(outcomes))


async def settled(
    server: ServerState, caller: Caller, settlements: list[bodies.Settlement], queues: set[str]
) -> list[bodies.OutcomeView]:
    """Settle leases; `queues_of` has checked the caller's permissions."""
    model = [settlement(item) for item in settlements]
    await server.load_settings(caller.tenant, *queues)
    outcomes = await server.drive(server.verbs(caller.tenant).settle(model))
    server.metrics.settle(caller.tenant, settlements, outcomes)
    return [outcome_view(outcome) for outcome in outcomes]


def queues_of(caller: Caller, receipts: list[str]) -> set[str]:
    """The queues of receipts. Raises if the caller may not consume one of them."""
    queues = {receipt.rpartition("/")[0] for receipt in receipts}
    for queue in queues:
        caller.need("consume", validate.name(queue, "receipt"))
    return queues


def settlement(item: bodies.Settlement) -> Settlement:
    if item.verb == "ack":
        return Ack(item.receipt, item.result)
    if item.verb == "nack":
        return Nack(item.receipt, item.error, item.delay, item.traceback, item.max_attempts)
    if item.verb == "reject":
        return Reject(
            item.receipt, reasons.UNRECOVERABLE if item.reason is None else item.reason, item.error, item.traceback
        )
    return Release(item.receipt, item.delay)


def outcome_view(outcome: Outcome) -> bodies.OutcomeView:
    error = outcome.error
    return bodies.OutcomeView(outcome.id, outcome.state, None if error is None else item_error(error))


async def extend(request: HttpRequest) -> Reply:
    caller = await request.admit()
    body: bodies.Extend = await request.read(bodies.EXTEND)
    count = request.check_batch(body.leases, "leases")
    queues = queues_of(caller, [item.receipt for item in body.leases])
    request.subject.add(sorted(queues))
    await request.spend(caller, count)
    return request.answer(bodies.Extended(await extended(request.server, caller, body.leases, queues)))


async def extended(
    server: ServerState, caller: Caller, leases: list[bodies.ExtendItem], queues: set[str]
) -> list[bodies.ExtendedView]:
    """Extend leases; `queues_of` has checked the caller's permissions."""
    await server.load_settings(caller.tenant, *queues)
    replies = await server.drive(server.verbs(caller.tenant).extend_many([(item.receipt, item.by) for item in leases]))
    return [
        bodies.ExtendedView(error=item_error(reply))
        if isinstance(reply, TampuError)
        else bodies.ExtendedView(moment(reply.until_us), reply.cancel_requested)
        for reply in replies
    ]


EXACT: dict[str, Handler] = {"/v1/claim": claim, "/v1/settle": settle, "/v1/extend": extend}
OF_QUEUE: dict[str, Handler] = {"messages": publish_one, "publish": publish_many}
