"""load: store many plain messages under ids of their own, without making an object of any.

Contract: a call is all or nothing; refuses with QueueFull. A message whose id is there already, in any queue of the
tenant, is left as it is. Ids that are loaded together begin alike, so one reservation serves all of them; see `naming`.
"""

from __future__ import annotations

import itertools
import secrets
from typing import Any

from tampu.engines.load import check
from tampu.engines.port import Item, Load
from tampu.engines.redis import publish, reservations, rows
from tampu.engines.redis.queue_registry import QueueEntry
from tampu.engines.redis.run_context import RunContext
from tampu.engines.redis.script_calls import Asking, ok
from tampu.engines.rules import full
from tampu.model.errors import Unavailable
from tampu.model.message import unpack_body


def load(context: RunContext, call: Load) -> Asking[int]:
    check(call)
    text = call.id_prefix.hex()
    begin = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    room = yield from context.registry.enter(call.tenant, call.queue)
    voided = ""
    for _ in range(reservations.TRIES):
        (reply,) = yield [_reserve(context, call, begin, voided)]
        mine, *rest = ok(reply)
        if not mine:
            other = yield from context.registry.enter(call.tenant, rest[0].decode())
            (used,) = yield [
                context.write.script("void_reservation", other.tag, "s", begin, rest[1], reservations.VOID_US)
            ]
            if ok(used):  # ids of this beginning are in another queue: each by itself
                return (yield from _one_by_one(context, call, begin))
            voided = rest[1].decode()
            continue
        token, *others = rest
        elsewhere = yield from _elsewhere(context, call, begin, others)
        (reply,) = yield [_ask(context, call, room, begin, token, elsewhere)]
        _, _, new, stored = context.heard(room, reply)
        if stored == b"void":
            voided = token.decode()
            continue
        if stored == b"full":
            raise full(call)
        if new:
            yield from context.registry.confirm(room)
        return int(stored)
    raise Unavailable("others keep loading under the same ids", hint="try again")


def _reserve(context: RunContext, call: Load, begin: str, voided: str) -> Any:
    token = f"{secrets.randbits(63):x}"
    return context.write.script(
        "reserve_id_prefix", context.registry.tags.tenant(call.tenant), call.queue, token, begin, voided,
        reservations.LOOK_US, rows.encode(list(call.numbers)),
    )  # fmt: skip


def _ask(context: RunContext, call: Load, room: QueueEntry, begin: str, token: bytes, elsewhere: set[int]) -> Any:
    numbers, starts, types = list(call.numbers), list(call.starts), list(call.types)
    bodies = bytes(call.bodies)
    if elsewhere:
        chosen = [i for i, number in enumerate(numbers) if number not in elsewhere]
        pieces = [bodies[starts[i] : starts[i + 1]] for i in chosen]
        numbers, types = [numbers[i] for i in chosen], [types[i] for i in chosen]
        starts, bodies = [0, *itertools.accumulate(map(len, pieces))], b"".join(pieces)
    kinds: Any = types[0] if types and types.count(types[0]) == len(types) else types
    packed = rows.encode((numbers, starts, kinds))
    return context.write.script(
        "load", room.tag, call.max_depth, begin, token, call.max_attempts, packed, bodies, call.remember_us
    )


def _elsewhere(context: RunContext, call: Load, begin: str, others: list[Any]) -> Asking[set[int]]:
    """Single ids of this beginning that other queues have: in use there, or free from now on."""
    found: set[int] = set()
    for number, queue, token in zip(others[::3], others[1::3], others[2::3], strict=True):
        other = yield from context.registry.enter(call.tenant, queue.decode())
        id = f"{begin}{number:010x}"
        (used,) = yield [context.write.script("void_reservation", other.tag, "o", id, token, reservations.VOID_US)]
        if ok(used):
            found.add(number)
        else:
            (reply,) = yield [
                context.write.script("drop_reservation", context.registry.tags.tenant(call.tenant), f"o{id}", token)
            ]
            ok(reply)
    return found


def _one_by_one(context: RunContext, call: Load, begin: str) -> Asking[int]:
    bodies = bytes(call.bodies)
    items = []
    for number, (start, end) in zip(call.numbers, itertools.pairwise(call.starts), strict=True):
        packed = bodies[start:end]
        items.append(Item(unpack_body(packed), packed, call.max_attempts, id=f"{begin}{number:010x}"))
    made = yield from publish.store(context, call, items)
    return sum(not message.duplicate for message in made)
