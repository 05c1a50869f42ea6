"""Reservations make the ids that users give unique in a tenant, over all its queues.

The queue of a message stores the id with the message, in one script. The tenant only stores which queue to ask: the
reservation, made before the message is stored. A process that dies in between leaves a reservation without a message.
A publisher that wants the id for another queue asks the first queue. That queue answers that the id is in use, or
marks the reservation (its token) as void. A publisher that was only slow is then refused by its own queue and reserves
again. Nothing is lost or stored twice, and nothing needs a timeout.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from tampu.engines.port import Item
from tampu.engines.redis import rows
from tampu.engines.redis.connection.script_calls import Operation, ok
from tampu.engines.redis.queue_registry import QueueEntry, RunContext
from tampu.model.errors import Unavailable

TRIES = 20
VOID_US = 86_400_000_000
"""How long a queue remembers that a reservation is void: longer than any call can take."""
LOOK_US = 86_400_000_000
"""How often reservations of user-given ids are checked against their queue."""


def needed(items: Sequence[Item]) -> bool:
    return any(item.id is not None for item in items)


class Reservations:
    """The ids of one publish."""

    def __init__(self, context: RunContext, entry: QueueEntry, items: Sequence[Item]) -> None:
        self._context = context
        self._entry = entry
        self._items = items
        self._held: dict[str, str] = {}
        self._voided: dict[str, str] = {}
        self._tries = 0

    def lose(self, tokens: Sequence[bytes]) -> None:
        """Record that the queue has voided these reservations."""
        lost = {token.decode() for token in tokens}
        self._voided.update({id: token for id, token in self._held.items() if token in lost})

    def reserve(self, packed: Sequence[dict[str, Any]], *, leave_taken: bool = False) -> Operation[None]:
        """Write the reservations into the packed items, and which ids other queues use.

        With ``leave_taken`` those items are left out; otherwise the script refuses the call when it comes to them.
        """
        used: set[str] = set()
        while True:
            self._tries += 1
            if self._tries > TRIES:
                raise Unavailable("other processes keep publishing with the same ids", hint="try again")
            others = yield from self._request()
            for id, queue, token in others:
                if (yield from self._in_use(id, queue, token)):
                    used.add(id)
            if all(id in used for id, _, _ in others):
                break
        for i, item in enumerate(self._items):
            packed[i].pop("f", None)
            if item.id in used:
                packed[i]["f"] = 2 if leave_taken else 1
            if item.id in self._held:
                packed[i]["oc"] = self._held[item.id]

    def _request(self) -> Operation[list[tuple[str, str, str]]]:
        """Reserve the ids for this queue. Returns (id, queue, token) of those that other queues have."""
        names = list(dict.fromkeys(item.id for item in self._items if item.id is not None))
        argument = [(id, self._voided.get(id, "")) for id in names]
        token = f"{secrets.randbits(63):x}"
        tag = self._context.registry.tags.tenant(self._entry.tenant)
        (reply,) = yield [
            self._context.write.script("reserve", tag, self._entry.queue, token, LOOK_US, rows.encode(argument))
        ]
        others = []
        self._held = {}
        for id, (mine, *rest) in zip(names, ok(reply), strict=True):
            if mine:
                self._held[id] = rest[0].decode()
            else:
                queue, other_token = rest
                others.append((id, queue.decode(), other_token.decode()))
        return others

    def _in_use(self, id: str, queue: str, token: str) -> Operation[bool]:
        """Ask the queue that has the id whether a message has it. If not, the reservation is void there."""
        entry = yield from self._context.registry.register(self._entry.tenant, queue)
        (reply,) = yield [self._context.write.script("void_reservation", entry.tag, "o", id, token, VOID_US)]
        if not ok(reply):
            self._voided[id] = token
        return bool(ok(reply))
