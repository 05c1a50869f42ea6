"""claim: lease the first messages of the ready index, from queue after queue until the limit is reached.

One script per queue. The same pipeline asks which of the other queues have messages, so an empty claim costs one round
trip for any number of queues.
"""

from __future__ import annotations

import math
import secrets
from typing import Any

import msgspec

from tampu.engines.port import AGAIN, Again, Claim, QueueClaim, RetryLater
from tampu.engines.redis import rows
from tampu.engines.redis.connection.script_calls import Operation, ScriptCall
from tampu.engines.redis.ids import cut
from tampu.engines.redis.queue_registry import QueueEntry, RunContext
from tampu.engines.rules import SWEEP_FIRST, nothing
from tampu.model.errors import TampuError
from tampu.model.message import Lease, Message, State


def claim(context: RunContext, call: Claim) -> Operation[list[Lease] | RetryLater | Again]:
    entries = yield from context.registry.find_many(call.tenant, [want.queue for want in call.wants])
    pending = [(want, entry) for want, entry in zip(call.wants, entries, strict=True) if entry is not None]
    leases: list[Lease] = []
    waits: list[int] = []
    unfinished = False
    while pending and len(leases) < call.limit:
        want, entry = pending.pop(0)
        lease = f"{secrets.randbits(63):x}"
        calls = [_claim_call(context, call, want, entry, lease, call.limit - len(leases))]
        calls += [context.write.script("has_claimable", other.tag) for _, other in pending]
        reply, *claimable = yield calls
        if isinstance(reply, TampuError) and leases:
            break  # return what is claimed already; the next claim asks this queue's server again
        swept, *found = context.read_reply(entry, reply)
        unfinished = context.swept(entry, swept) >= SWEEP_FIRST or unfinished
        if len(found) == 1:
            waits += found
        elif found:
            leases.extend(_leases(call, entry, lease, found))
        pending = [other for other, yes in zip(pending, claimable, strict=True) if yes]
    if leases:
        return leases
    return AGAIN if unfinished else nothing(waits)


def _claim_call(
    context: RunContext, call: Claim, want: QueueClaim, entry: QueueEntry, lease: str, limit: int
) -> ScriptCall:
    burst = want.burst or max(1, math.ceil(want.rate))
    return context.write.script(
        "claim", entry.tag, limit, lease, want.lease_us, call.worker or "", want.max_in_flight, want.rate, burst,
        SWEEP_FIRST, int(want.has_group_rate),
    )  # fmt: skip


def _leases(call: Claim, entry: QueueEntry, lease: str, found: list[Any]) -> list[Lease]:
    until, packed, counts, errors, *raw = found
    seqs = cut(packed.decode())
    attempts = [counts] * len(seqs) if isinstance(counts, int) else rows.decode(counts)
    tenant, queue, worker, leased, read = call.tenant, entry.queue, call.worker, State.LEASED, rows.read_row
    begin, end = f"{queue}/", f".{lease}"
    leases = []
    for seq, id, attempt, packed_row in zip(seqs, entry.ids.many(seqs), attempts, raw, strict=True):
        row = read(packed_row)
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
        found_errors = rows.decode(errors)
        for position, error in found_errors.items() if isinstance(found_errors, dict) else enumerate(found_errors, 1):
            message = msgspec.structs.replace(leases[position - 1].message, last_error=error)
            leases[position - 1] = msgspec.structs.replace(leases[position - 1], message=message)
    return leases
