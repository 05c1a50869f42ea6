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
from tampu.engines.redis import ids, rows
from tampu.engines.redis.connection.script_calls import Operation, ok
from tampu.engines.redis.queue_registry import QueueEntry
from tampu.engines.redis.run_context import RunContext
from tampu.model.errors import Unavailable
from tampu.model.message import Message

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

    def reserve(self, packed: Sequence[dict[str, Any]]) -> Operation[dict[int, Message]]:
        """Write the reservations into the packed items. Returns the messages that have these ids already, by index."""
        known: dict[int, Message] = {}
        found = yield from self._made_by_tampu()
        while True:
            self._tries += 1
            if self._tries > TRIES:
                raise Unavailable("other processes keep publishing with the same ids", hint="try again")
            others = yield from self._request()
            for id, queue, token in others:
                message = yield from self._elsewhere(id, queue, token)
                if message is not None:
                    found[id] = message
            if all(id in found for id, _, _ in others):
                break
        for i, item in enumerate(self._items):
            packed[i].pop("f", None)
            if item.id in found:
                known[i], packed[i]["f"] = found[item.id], 1
            if item.id in self._held:
                packed[i]["oc"] = self._held[item.id]
        return known

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
                others.append((id, rest[0].decode(), rest[1].decode()))
        return others

    def _made_by_tampu(self) -> Operation[dict[str, Message]]:
        """Messages of given ids that tampu made itself."""
        given = {item.id: ids.parse(item.id) for item in self._items if item.id}
        entries = yield from self._context.registry.by_tails(
            {parsed[0] for parsed in given.values() if parsed is not None}
        )
        places = [
            (id, entries[parsed[0]], parsed[1])
            for id, parsed in given.items()
            if parsed is not None and parsed[0] in entries and entries[parsed[0]].tenant == self._entry.tenant
        ]
        if not places:
            return {}
        replies = yield [self._context.write.script("get_message", entry.tag, number) for _, entry, number in places]
        found = [(id, self._read(entry, reply)) for (id, entry, _), reply in zip(places, replies, strict=True)]
        return {id: message for id, message in found if message is not None}

    def _elsewhere(self, id: str, queue: str, token: str) -> Operation[Message | None]:
        """Ask the queue that has the id for its message. If there is none, the reservation is void there."""
        entry = yield from self._context.registry.register(self._entry.tenant, queue)
        (reply,) = yield [self._context.write.script("void_reservation", entry.tag, "o", id, token, VOID_US)]
        if not ok(reply):
            self._voided[id] = token
            return None
        (reply,) = yield [self._context.write.script("get_message", entry.tag, id)]
        return self._read(entry, reply)

    @staticmethod
    def _read(entry: QueueEntry, reply: Any) -> Message | None:
        if ok(reply) is None:
            return None
        seq, raw, place, _, _, error, _ = reply
        return rows.again(rows.message(entry, seq.decode(), raw, place, error))
