"""claim: lease the first messages of the ready index, from queue after queue until the limit is reached.

Contract: attempts + 1, a receipt that can not repeat (63 random bits per claim), never more than the limit, the queue's
max_in_flight and its rate allow, never a message past its expiry. One script per queue; which of many queues have
anything is asked in one pipeline first, so an empty claim costs one turn however many there are.
"""

from __future__ import annotations

import math
import secrets
from typing import Any

import msgspec

from tampu.engines.port import AGAIN, Again, Claim, QueueClaim, RetryLater
from tampu.engines.redis import rows
from tampu.engines.redis.ids import cut
from tampu.engines.redis.queue_registry import QueueEntry
from tampu.engines.redis.run_context import RunContext
from tampu.engines.redis.script_calls import Asking, ScriptCall
from tampu.engines.rules import SWEEP_FIRST, nothing
from tampu.model.errors import TampuError
from tampu.model.message import Lease, Message, State


def claim(context: RunContext, call: Claim) -> Asking[list[Lease] | RetryLater | Again]:
    rooms = yield from context.registry.known_ones(call.tenant, [want.queue for want in call.wants])
    wants = [(want, room) for want, room in zip(call.wants, rooms, strict=True) if room is not None]
    leases: list[Lease] = []
    waits: list[int] = []
    unfinished = False
    while wants and len(leases) < call.limit:
        want, room = wants.pop(0)
        lease = f"{secrets.randbits(63):x}"
        asks = [_ask(context, call, want, room, lease, call.limit - len(leases))]
        asks += [context.write.script("has_claimable", other.tag) for _, other in wants]
        reply, *waiting = yield asks
        if isinstance(reply, TampuError) and leases:
            break  # what is claimed already is the caller's; the server of this queue will be asked next time
        found = context.heard(room, reply)
        unfinished = context.swept(room, found[2]) >= SWEEP_FIRST or unfinished
        if len(found) == 4:
            waits.append(found[3])
        elif len(found) > 4:
            leases.extend(_leases(call, room, lease, found[3:]))
        wants = [one for one, there in zip(wants, waiting, strict=True) if there]
    if leases:
        return leases
    return AGAIN if unfinished else nothing(waits)


def _ask(context: RunContext, call: Claim, want: QueueClaim, room: QueueEntry, lease: str, limit: int) -> ScriptCall:
    burst = want.burst or max(1, math.ceil(want.rate))
    return context.write.script(
        "claim", room.tag, limit, lease, want.lease_us, call.worker or "", want.max_in_flight, want.rate, burst,
        SWEEP_FIRST, int(want.has_group_rate),
    )  # fmt: skip


def _leases(call: Claim, room: QueueEntry, lease: str, found: list[Any]) -> list[Lease]:
    until, packed, counts, errors, *raw = found
    seqs = cut(packed.decode())
    attempts = [counts] * len(seqs) if isinstance(counts, int) else rows.decode(counts)
    tenant, queue, worker, leased, read = call.tenant, room.queue, call.worker, State.LEASED, rows.read_row
    begin, end = f"{queue}/", f".{lease}"
    leases = []
    for seq, id, attempt, one in zip(seqs, room.ids.many(seqs), attempts, raw, strict=True):
        row = read(one)
        extra = row.extra
        if extra is None:
            message = Message(id, tenant, queue, leased, row.body, attempt, row.max_attempts, row.created)
        else:
            message = Message(
                extra.get("o") or id, tenant, queue, leased, row.shown, attempt, row.max_attempts, row.created, None,
                extra.get("e"),
            )  # fmt: skip
        leases.append(Lease(message, f"{begin}{seq}{end}", until, worker))
    if errors:
        told = rows.decode(errors)
        for place, error in told.items() if isinstance(told, dict) else enumerate(told, 1):
            message = msgspec.structs.replace(leases[place - 1].message, last_error=error)
            leases[place - 1] = msgspec.structs.replace(leases[place - 1], message=message)
    return leases
