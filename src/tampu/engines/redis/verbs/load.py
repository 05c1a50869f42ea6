"""load: store many simple messages under given ids, without an object per message.

Ids loaded together share a prefix, so one reservation covers them; see `reservations`.
"""

from __future__ import annotations

import itertools
import secrets
from typing import Any

from tampu.engines.load import check
from tampu.engines.port import Item, Load
from tampu.engines.redis import rows
from tampu.engines.redis.connection.script_calls import Operation, ok
from tampu.engines.redis.queue_registry import QueueEntry, RunContext
from tampu.engines.redis.verbs import publish, reservations
from tampu.engines.rules import full, of_another_queue
from tampu.model.errors import Unavailable
from tampu.model.message import unpack_body


def load(context: RunContext, call: Load) -> Operation[int]:
    check(call)
    text = call.id_prefix.hex()
    id_prefix = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    entry = yield from context.registry.register(call.tenant, call.queue)
    voided = ""
    for _ in range(reservations.TRIES):
        (reply,) = yield [_reserve(context, call, id_prefix, voided)]
        mine, *rest = ok(reply)
        if not mine:
            queue, token = rest
            other = yield from context.registry.register(call.tenant, queue.decode())
            (used,) = yield [
                context.write.script("void_reservation", other.tag, "s", id_prefix, token, reservations.VOID_US)
            ]
            if ok(used):  # another queue has ids with this prefix: look up each id
                return (yield from _one_by_one(context, call, id_prefix))
            voided = token.decode()
            continue
        token, *others = rest
        elsewhere = yield from _elsewhere(context, call, id_prefix, others)
        (reply,) = yield [_load_call(context, call, entry, id_prefix, token, elsewhere)]
        new, stored = context.read_reply(entry, reply)
        if stored == b"void":
            voided = token.decode()
            continue
        if stored == b"full":
            raise full(call)
        if stored == b"taken":
            raise of_another_queue()
        if stored == b"asked":
            return (yield from _one_by_one(context, call, id_prefix))
        if new:
            yield from context.registry.confirm(entry)
        return int(stored)
    raise Unavailable("other processes keep loading the same ids", hint="try again")


def _reserve(context: RunContext, call: Load, id_prefix: str, voided: str) -> Any:
    token = f"{secrets.randbits(63):x}"
    return context.write.script(
        "reserve_id_prefix", context.registry.tags.tenant(call.tenant), call.queue, token, id_prefix, voided,
        reservations.LOOK_US, rows.encode(list(call.numbers)),
    )  # fmt: skip


def _load_call(
    context: RunContext, call: Load, entry: QueueEntry, id_prefix: str, token: bytes, elsewhere: list[int]
) -> Any:
    types = list(call.types)
    kinds: Any = types[0] if types and types.count(types[0]) == len(types) else types
    packed = rows.encode((list(call.numbers), list(call.starts), kinds, elsewhere))
    return context.write.script(
        "load", entry.tag, call.max_depth, id_prefix, token, call.max_attempts, packed, bytes(call.bodies),
        call.remember_us,
    )  # fmt: skip


def _elsewhere(context: RunContext, call: Load, id_prefix: str, others: list[Any]) -> Operation[list[int]]:
    """Numbers whose ids other queues use. Reservations there that are not in use are dropped."""
    found: list[int] = []
    for number, queue, token in zip(others[::3], others[1::3], others[2::3], strict=True):
        other = yield from context.registry.register(call.tenant, queue.decode())
        id = f"{id_prefix}{number:010x}"
        (used,) = yield [context.write.script("void_reservation", other.tag, "o", id, token, reservations.VOID_US)]
        if ok(used):
            found.append(number)
        else:
            (reply,) = yield [
                context.write.script("drop_reservation", context.registry.tags.tenant(call.tenant), f"o{id}", token)
            ]
            ok(reply)
    return found


def _one_by_one(context: RunContext, call: Load, id_prefix: str) -> Operation[int]:
    bodies = bytes(call.bodies)
    items = []
    for number, (start, end) in zip(call.numbers, itertools.pairwise(call.starts), strict=True):
        packed = bodies[start:end]
        items.append(Item(unpack_body(packed), packed, call.max_attempts, id=f"{id_prefix}{number:010x}"))
    made = yield from publish.store(context, call, items)
    return sum(not message.duplicate for message in made)
