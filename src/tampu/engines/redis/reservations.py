"""Reservations make names unique in a tenant, over all its queues. Names are idempotency keys and ids that users gave.

The queue of a message stores the name with the message, in one script. The tenant only stores which queue to ask: the
reservation, made before the message is stored. A process that dies in between leaves a reservation without a message.
A publisher that wants the name for another queue asks the first queue. That queue answers that the name is in use, or
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
    return any(item.body.idempotency_key is not None or item.id is not None for item in items)


class Reservations:
    """The names of one publish."""

    def __init__(self, context: RunContext, entry: QueueEntry, items: Sequence[Item]) -> None:
        self._context = context
        self._entry = entry
        self._items = items
        self._voided: dict[tuple[str, str], str] = {}
        self._tokens: dict[str, tuple[str, str]] = {}
        self._tries = 0

    def _wanted(self) -> dict[tuple[str, str], int]:
        names: dict[tuple[str, str], int] = {}
        for item in self._items:
            if item.body.idempotency_key is not None:
                names["i", item.body.idempotency_key] = item.window_us
            if item.id is not None:
                names["o", item.id] = LOOK_US
        return names

    def lose(self, tokens: Sequence[bytes]) -> None:
        """Record that the queue has voided these reservations."""
        for token in tokens:
            kind_and_name = self._tokens.get(token.decode())
            if kind_and_name is not None:
                self._voided[kind_and_name] = token.decode()

    def reserve(self, packed: Sequence[dict[str, Any]]) -> Operation[dict[int, Message]]:
        """Write the reservations into the packed items. Returns the messages that have these ids already, by index."""
        known: dict[int, Message] = {}
        found = yield from self._made_by_tampu()
        conflicts: set[str] = set()
        while True:
            self._tries += 1
            if self._tries > TRIES:
                raise Unavailable("other processes keep publishing with the same ids or keys", hint="try again")
            others, held = yield from self._request_names()
            for kind, name, queue, token in others:
                used, message = yield from self._elsewhere(kind, name, queue, token)
                if message is not None:
                    found[name] = message
                elif used and kind == "i":
                    conflicts.add(name)
            if all(name in (conflicts if kind == "i" else found) for kind, name, _, _ in others):
                break
        for i, item in enumerate(self._items):
            packed[i].pop("f", None)
            if item.id in found:
                known[i], packed[i]["f"] = found[item.id], 1
            key = item.body.idempotency_key
            if key in conflicts:  # the script reports it: an earlier item may be refused first
                packed[i]["c"] = 1
            elif key is not None:
                packed[i]["ic"], packed[i]["iw"] = held["i", key]
            if item.id is not None and ("o", item.id) in held:
                packed[i]["oc"] = held["o", item.id][0]
        return known

    def _request_names(
        self,
    ) -> Operation[tuple[list[tuple[str, str, str, str]], dict[tuple[str, str], tuple[str, int]]]]:
        """Reservations of other queues, and (token, until) of those of this queue."""
        names = self._wanted()
        argument = [(kind, name, window, self._voided.get((kind, name), "")) for (kind, name), window in names.items()]
        token = f"{secrets.randbits(63):x}"
        tag = self._context.registry.tags.tenant(self._entry.tenant)
        (reply,) = yield [self._context.write.script("reserve", tag, self._entry.queue, token, rows.encode(argument))]
        others, held = [], {}
        for (kind, name), answer in zip(names, ok(reply), strict=True):
            if answer[0] == -1:
                others.append((kind, name, answer[1].decode(), answer[2].decode()))
            else:
                mine = answer[1].decode() if answer[0] else ""
                held[kind, name] = (mine, answer[0])
                self._tokens[mine] = (kind, name)
        return others, held

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

    def _elsewhere(self, kind: str, name: str, queue: str, token: str) -> Operation[tuple[bool, Message | None]]:
        """Ask the queue that has the name: is it in use, and for an id by which message? If not, it is void there."""
        entry = yield from self._context.registry.register(self._entry.tenant, queue)
        (reply,) = yield [self._context.write.script("void_reservation", entry.tag, kind, name, token, VOID_US)]
        if not ok(reply):
            self._voided[kind, name] = token
            return False, None
        return True, (yield from self._load(entry, name)) if kind == "o" else None

    def _load(self, entry: QueueEntry, name: str) -> Operation[Message | None]:
        (reply,) = yield [self._context.write.script("get_message", entry.tag, name)]
        return self._read(entry, reply)

    @staticmethod
    def _read(entry: QueueEntry, reply: Any) -> Message | None:
        if ok(reply) is None:
            return None
        seq, raw, place, _, _, error, _ = reply
        return rows.again(rows.message(entry, seq.decode(), raw, place, error))
