"""Reservations that are unique in a tenant, over all its queues: idempotency keys and ids of the user's own.

What a name stands for is kept in the queue of its message, and changes with it, in one script. The tenant only keeps in
which queue to look: a reservation, made before the message is stored. A process that dies in between leaves a
reservation and no message. Whoever wants the name for another queue then asks the first queue, which answers that the
name is in use, or remembers that this reservation (its token) holds no more; so a publisher that was only slow is
refused by its own queue, and comes back here. Nothing is lost or doubled, and nothing has to time out.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from tampu.engines.port import Item
from tampu.engines.redis import ids, rows
from tampu.engines.redis.queue_registry import QueueEntry
from tampu.engines.redis.run_context import RunContext
from tampu.engines.redis.script_calls import Asking, ok
from tampu.model.errors import Unavailable
from tampu.model.message import Message

TRIES = 20
VOID_US = 86_400_000_000
"""How long a queue remembers that a reservation holds no more: longer than any call can be under way."""
LOOK_US = 86_400_000_000
"""Reservations of own ids are held against their queue this often."""


def wanted(items: Sequence[Item]) -> bool:
    return any(item.body.idempotency_key is not None or item.id is not None for item in items)


class Reservations:
    """The names of one publish."""

    def __init__(self, context: RunContext, room: QueueEntry, items: Sequence[Item]) -> None:
        self._context = context
        self._room = room
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
        """The queue says that these reservations hold no more."""
        for token in tokens:
            kind_and_name = self._tokens.get(token.decode())
            if kind_and_name is not None:
                self._voided[kind_and_name] = token.decode()

    def reserve(self, packed: Sequence[dict[str, Any]]) -> Asking[dict[int, Message]]:
        """Write the reservations into the items; the messages that own ids stand for already, by place."""
        known: dict[int, Message] = {}
        found = yield from self._our_own()
        conflicts: set[str] = set()
        while True:
            self._tries += 1
            if self._tries > TRIES:
                raise Unavailable("others keep publishing with the same names", hint="try again")
            others, held = yield from self._ask()
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
            if key in conflicts:  # the script says so, for an item before it may be refused first
                packed[i]["c"] = 1
            elif key is not None:
                packed[i]["ic"], packed[i]["iw"] = held["i", key]
            if item.id is not None and ("o", item.id) in held:
                packed[i]["oc"] = held["o", item.id][0]
        return known

    def _ask(self) -> Asking[tuple[list[tuple[str, str, str, str]], dict[tuple[str, str], tuple[str, int]]]]:
        """Reservations that other queues have, and (token, until) of those that are ours."""
        names = self._wanted()
        argument = [(kind, name, window, self._voided.get((kind, name), "")) for (kind, name), window in names.items()]
        token = f"{secrets.randbits(63):x}"
        tag = self._context.registry.tags.tenant(self._room.tenant)
        (reply,) = yield [self._context.write.script("reserve", tag, self._room.queue, token, rows.encode(argument))]
        others, held = [], {}
        for (kind, name), answer in zip(names, ok(reply), strict=True):
            if answer[0] == -1:
                others.append((kind, name, answer[1].decode(), answer[2].decode()))
            else:
                mine = answer[1].decode() if answer[0] else ""
                held[kind, name] = (mine, answer[0])
                self._tokens[mine] = (kind, name)
        return others, held

    def _our_own(self) -> Asking[dict[str, Message]]:
        """Own ids that are ids we made: the messages they belong to."""
        given = {item.id: ids.parse(item.id) for item in self._items if item.id}
        rooms = yield from self._context.registry.by_tails(
            {parsed[0] for parsed in given.values() if parsed is not None}
        )
        places = [
            (id, rooms[parsed[0]], parsed[1])
            for id, parsed in given.items()
            if parsed is not None and parsed[0] in rooms and rooms[parsed[0]].tenant == self._room.tenant
        ]
        if not places:
            return {}
        replies = yield [self._context.write.script("get_message", room.tag, number) for _, room, number in places]
        found = [(id, self._read(room, reply)) for (id, room, _), reply in zip(places, replies, strict=True)]
        return {id: message for id, message in found if message is not None}

    def _elsewhere(self, kind: str, name: str, queue: str, token: str) -> Asking[tuple[bool, Message | None]]:
        """Ask the queue that has the name whether it is in use, or free from now on; whose own id it is."""
        room = yield from self._context.registry.enter(self._room.tenant, queue)
        (reply,) = yield [self._context.write.script("void_reservation", room.tag, kind, name, token, VOID_US)]
        if not ok(reply):
            self._voided[kind, name] = token
            return False, None
        return True, (yield from self._load(room, name)) if kind == "o" else None

    def _load(self, room: QueueEntry, name: str) -> Asking[Message | None]:
        (reply,) = yield [self._context.write.script("get_message", room.tag, name)]
        return self._read(room, reply)

    @staticmethod
    def _read(room: QueueEntry, reply: Any) -> Message | None:
        if ok(reply) is None:
            return None
        seq, raw, place, _, _, error, _ = reply
        return rows.again(rows.message(room, seq.decode(), raw, place, error))
