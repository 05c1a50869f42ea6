"""Claim, settle, extend, waiting for a result; and the table of the handlers that are called without the framework."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.core import Steps
from tampu.model import reasons
from tampu.model.errors import TampuError
from tampu.model.message import MSGPACK, Lease, Message
from tampu.model.outcome import Ack, Nack, Outcome, Reject, Release, Settlement
from tampu.model.states import TERMINAL
from tampu.model.times import SECOND, duration, moment
from tampu.server import claim_sizes
from tampu.server.auth.grants import Caller
from tampu.server.http.long_polls import GONE, REVOKED, Poll, PollOver
from tampu.server.http.publish import publish_many, publish_one
from tampu.server.http.request import Disconnected, Handler, HttpRequest, Reply
from tampu.server.server_state import ServerState
from tampu.wire import bodies
from tampu.wire.media import GROWTH, decode_part
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
    wait = min(duration(body.wait, "wait") / SECOND, server.settings.max_wait)
    await server.load_settings(caller.tenant, *queues[:1001])
    limit = min(body.limit, server.limits.most(caller, body.limit))

    def steps(limit: int, wait: float) -> Steps[list[Lease]]:
        verbs = server.verbs(caller.tenant)
        return verbs.claim(queues, limit=limit, lease=body.lease, wait=wait, worker=body.worker)

    first = steps(server.claim_sizes.limit(caller.tenant, queues, limit), wait)
    leases = await (server.drive(first) if not wait else claim_waiting(request, caller, first))
    if leases and len(leases) < limit:
        leases += await _claim_more(server, caller, queues, leases, limit, steps)
    await request.charge(caller, len(leases) - 1)  # the first was paid for before
    server.metrics.claim(leases, server.now_us())
    request.subject.add(ids=(lease.message.id for lease in leases))
    form = request.response_media
    return request.answer(bodies.Claimed([lease_view(lease, form) for lease in leases]))


async def _claim_more(
    server: ServerState,
    caller: Caller,
    queues: list[str],
    leases: list[Lease],
    limit: int,
    steps: Callable[[int, float], Steps[list[Lease]]],
) -> list[Lease]:
    """Further messages for the same answer, while they fit into it. See `claim_sizes`."""
    sizes, found = server.claim_sizes, list(leases)
    with contextlib.suppress(TampuError):  # what was claimed is delivered
        while True:
            sizes.note(caller.tenant, queues, found)
            room = claim_sizes.MAX_BYTES - claim_sizes.size(found)
            if room <= 0 or len(found) >= limit:
                break
            wanted = sizes.limit(caller.tenant, queues, limit - len(found), room)
            more = await server.drive(steps(wanted, 0))
            found += more
            if len(more) < wanted:
                break
    return found[len(leases) :]


@contextlib.asynccontextmanager
async def _long_poll(request: HttpRequest, caller: Caller) -> AsyncIterator[tuple[Poll, asyncio.Future[None]]]:
    """(a poll that ends with its client, whether that has left). Shutdown and a change of the key end the block too."""
    server, poll = request.server, Poll(caller)
    left = asyncio.ensure_future(request.left())
    left.add_done_callback(lambda _: poll.end(GONE))
    server.polls.join(poll)
    try:
        with server.budget.polls.hold():
            yield poll, left
    except PollOver as over:
        if over.why == GONE:
            raise Disconnected from None
        if over.why == REVOKED:
            await request.readmit()  # raises, unless only the permissions changed: then the client asks again
    finally:
        server.polls.leave(poll)
        left.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await left


async def claim_waiting(request: HttpRequest, caller: Caller, steps: Steps[list[Lease]]) -> list[Lease]:
    """Carry out a claim that waits. What it gets for a client that has left is given back."""
    async with _long_poll(request, caller) as (poll, left):
        leases = await request.server.drive(steps, poll)
        if leases and left.done():
            await request.server.release(caller, leases)
            raise Disconnected
        return leases
    return []


async def wait_for_result(request: HttpRequest, caller: Caller, id: str, seconds: float) -> Message:
    """The message when it has ended, or as it is at the timeout."""
    completion, message_id = request.server.completion, validate.id_text(id)
    future = await completion.expect(caller.tenant, message_id)
    try:
        async with _long_poll(request, caller) as (poll, _):
            message = await request.drive(request.verbs.get(message_id))  # after `expect`, so that no end is missed
            if message.state in TERMINAL or not await poll.until(future, seconds):
                return message
    finally:
        completion.forget(caller.tenant, message_id, future)
    return await request.drive(request.verbs.get(message_id))


# -- settle and extend


async def settle(request: HttpRequest) -> Reply:
    caller = await request.admit()
    body: bodies.Settle = await request.read_large(bodies.SETTLE)
    count = request.check_batch(body.settlements, "settlements")
    queues = queues_of(caller, [item.receipt for item in body.settlements])
    request.subject.add(sorted(queues))
    await request.spend(caller, count)
    await request.server.load_settings(caller.tenant, *queues)
    model = await request.off_loop(settlements, request.server, caller, body.settlements, request.media)
    outcomes = await settled(request.server, caller, body.settlements, model)
    request.subject.add(ids=(outcome.id for outcome in outcomes if outcome.id))
    return request.answer(bodies.Outcomes(outcomes))


async def settled(
    server: ServerState, caller: Caller, given: list[bodies.Settlement], model: list[Settlement]
) -> list[bodies.OutcomeView]:
    """Settle leases; `queues_of` has checked the caller's permissions."""
    outcomes = await server.drive(server.verbs(caller.tenant).settle(model))
    server.metrics.settle(caller.tenant, given, outcomes)
    return [outcome_view(outcome) for outcome in outcomes]


def queues_of(caller: Caller, receipts: list[str]) -> set[str]:
    """The queues of receipts. Raises if the caller may not consume one of them."""
    queues = {receipt.rpartition("/")[0] for receipt in receipts}
    for queue in queues:
        caller.need("consume", validate.name(queue, "receipt"))
    return queues


def settlements(server: ServerState, caller: Caller, given: list[bodies.Settlement], media: str) -> list[Settlement]:
    """The settlements with their results decoded; the settings of the queues are cached."""
    return [settlement(server, caller, item, media) for item in given]


def settlement(server: ServerState, caller: Caller, item: bodies.Settlement, media: str) -> Settlement:
    if item.verb == "ack":
        return Ack(item.receipt, _result(server, caller, item, media))
    if item.verb == "nack":
        return Nack(item.receipt, item.error, item.delay, item.traceback, item.max_attempts)
    if item.verb == "reject":
        return Reject(
            item.receipt, reasons.UNRECOVERABLE if item.reason is None else item.reason, item.error, item.traceback
        )
    return Release(item.receipt, item.delay)


def _result(server: ServerState, caller: Caller, item: bodies.Settlement, media: str) -> Any:
    if item.result is msgspec.UNSET:
        return None
    most = server.max_payload(caller.tenant, item.receipt.rpartition("/")[0])
    value = decode_part(item.result, media, most, "result", 1 if media == MSGPACK else GROWTH)
    return item.result if media == MSGPACK and value is not None else value


def outcome_view(outcome: Outcome) -> bodies.OutcomeView:
    error = outcome.error
    return bodies.OutcomeView(outcome.id, outcome.state, None if error is None else item_error(error))


async def extend(request: HttpRequest) -> Reply:
    caller = await request.admit()
    body: bodies.Extend = await request.read_large(bodies.EXTEND)
    count = request.check_batch(body.leases, "leases")
    queues = queues_of(caller, [item.receipt for item in body.leases])
    request.subject.add(sorted(queues))
    await request.spend(caller, count)
    await request.server.load_settings(caller.tenant, *queues)
    return request.answer(bodies.Extended(await extended(request.server, caller, body.leases)))


async def extended(server: ServerState, caller: Caller, leases: list[bodies.ExtendItem]) -> list[bodies.ExtendedView]:
    """Extend leases; `queues_of` has checked the caller's permissions."""
    replies = await server.drive(server.verbs(caller.tenant).extend_many([(item.receipt, item.by) for item in leases]))
    return [
        bodies.ExtendedView(error=item_error(reply))
        if isinstance(reply, TampuError)
        else bodies.ExtendedView(moment(reply.until_us), reply.cancel_requested)
        for reply in replies
    ]


EXACT: dict[str, Handler] = {"/v1/claim": claim, "/v1/settle": settle, "/v1/extend": extend}
OF_QUEUE: dict[str, Handler] = {"messages": publish_one, "publish": publish_many}
