"""What one run of the engine brought about, for those who wait."""

from __future__ import annotations

from typing import Any

from tampu.engines.redis.asking import Writer, ok
from tampu.engines.redis.house import House, Room


class Turn:
    def __init__(self, house: House) -> None:
        self.house = house
        self.write: Writer = house.write
        self.ready: dict[tuple[str, str], int] = {}
        self.due: int | None = None

    def heard(self, room: Room, reply: Any) -> list[Any]:
        """A script's reply begins with how many became ready and what is due first; the reply."""
        found: list[Any] = ok(reply)
        woken, due = found[0], found[1]
        if woken:
            name = (room.tenant, room.queue)
            self.ready[name] = self.ready.get(name, 0) + woken
        if due is not None and (self.due is None or due < self.due):
            self.due = due
        return found
