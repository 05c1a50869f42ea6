"""The directory of queues: which there are, and the tail of the ids of each.

A queue is written down before anything is stored in it, so nothing is ever stored where no keeper looks; it counts as
there when something was stored, or when it has settings. What is remembered here only saves asking: it is written once
and never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tampu.engines.redis import ids
from tampu.engines.redis.script_calls import Asking, ScriptCall, Writer, ok
from tampu.engines.redis.tags import Tags
from tampu.model.errors import StorageError

_SALTS = 16


class QueueEntry:
    """One queue."""

    __slots__ = ("ids", "made", "queue", "tag", "tenant")

    def __init__(self, tenant: str, queue: str, tag: str, tail: int, *, made: bool) -> None:
        self.tenant = tenant
        self.queue = queue
        self.tag = tag
        self.ids = ids.Ids(tail)
        self.made = made

    @property
    def partition(self) -> str:
        """The part of the journal that is this queue's."""
        return f"{self.tenant}/{self.queue}"


class QueueRegistry:
    def __init__(self, tags: Tags, write: Writer, *, sharded: bool = False) -> None:
        self.tags = tags
        self.write = write
        self.sharded = sharded
        """Queues may be on different servers."""
        self._rooms: dict[tuple[str, str], QueueEntry] = {}
        self._tails: dict[int, QueueEntry] = {}

    def forget(self) -> None:
        """The server may be another one, with older data: ask again."""
        self._rooms, self._tails = {}, {}

    def remembered(self) -> list[QueueEntry]:
        """Queues that are there, as far as is known without asking."""
        return [room for room in list(self._rooms.values()) if room.made]

    def known(self, tenant: str, queue: str) -> Asking[QueueEntry | None]:
        """The queue, if it is in the directory; it may be empty still."""
        room = self._rooms.get((tenant, queue))
        if room is None:
            (reply,) = yield [self.write.plain("HGET", self.tags.registry, "queues", f"{tenant}/{queue}")]
            if ok(reply) is None:
                return None
            room = self._learn(tenant, queue, reply)
        return room

    def known_ones(self, tenant: str, queues: Sequence[str]) -> Asking[list[QueueEntry | None]]:
        """`known` of many: those that are not remembered are asked for at once."""
        rooms = {queue: self._rooms.get((tenant, queue)) for queue in queues}
        missing = [queue for queue, room in rooms.items() if room is None]
        if missing:
            names = [f"{tenant}/{queue}" for queue in missing]
            (reply,) = yield [self.write.plain("HMGET", self.tags.registry, "queues", *names)]
            for queue, value in zip(missing, ok(reply), strict=True):
                if value is not None:
                    rooms[queue] = self._learn(tenant, queue, value)
        return [rooms[queue] for queue in queues]

    def present(self, tenant: str, queue: str) -> Asking[QueueEntry | None]:
        """The queue, if it is there."""
        room = yield from self.known(tenant, queue)
        if room is not None and not room.made:
            yield from self._look([room])
        return room if room is not None and room.made else None

    def enter(self, tenant: str, queue: str) -> Asking[QueueEntry]:
        """The queue, written down if it is new."""
        room = self._rooms.get((tenant, queue))
        return room if room is not None else (yield from self._register(tenant, queue, made=False))

    def confirm(self, room: QueueEntry) -> Asking[None]:
        """Something is stored in it now."""
        made = yield from self._register(room.tenant, room.queue, made=True)
        room.made = made.made = True

    def _register(self, tenant: str, queue: str, *, made: bool) -> Asking[QueueEntry]:
        for salt in range(_SALTS):
            tail = f"{ids.tail_of(tenant, queue, salt):014x}"
            (reply,) = yield [
                self.write.script("register_queue", self.tags.registry, f"{tenant}/{queue}", tail, 1 if made else 0)
            ]
            if ok(reply) is not None:
                return self._learn(tenant, queue, reply)
        raise StorageError(f"no place for the ids of queue {queue}", hint="use another name")

    def by_tails(self, tails: Iterable[int]) -> Asking[dict[int, QueueEntry]]:
        """The queues that ids with these tails belong to; those that are not remembered are asked for at once."""
        rooms = {tail: self._tails.get(tail) for tail in tails}
        missing = [f"{tail:014x}" for tail, room in rooms.items() if room is None]
        if missing:
            (reply,) = yield [self.write.plain("HMGET", self.tags.registry, "tails", *missing)]
            for text, name in zip(missing, ok(reply), strict=True):
                if name is not None:
                    tenant, _, queue = name.decode().partition("/")
                    rooms[int(text, 16)] = self._learn(tenant, queue, text.encode())
        return {tail: room for tail, room in rooms.items() if room is not None}

    def all(self, tenant: str | None = None) -> Asking[list[QueueEntry]]:
        """Every queue that is there, of one tenant or of all, by name."""
        (reply,) = yield [self.listing()]
        return (yield from self.listed(ok(reply), tenant))

    def listing(self) -> ScriptCall:
        return self.write.plain("HGETALL", self.tags.registry, "queues")

    def listed(self, flat: Sequence[bytes], tenant: str | None = None) -> Asking[list[QueueEntry]]:
        """What `listing` answered, as `all` tells it."""
        rooms = []
        for name, value in zip(flat[::2], flat[1::2], strict=True):
            owner, _, queue = name.decode().partition("/")
            if tenant is None or owner == tenant:
                rooms.append(self._learn(owner, queue, value))
        yield from self._look([room for room in rooms if not room.made])
        return sorted((room for room in rooms if room.made), key=lambda room: (room.tenant, room.queue))

    def _look(self, rooms: list[QueueEntry]) -> Asking[None]:
        """Is something stored in these? A process may have died between storing it and saying so here."""
        if rooms:
            replies = yield [self.write.plain("HEXISTS", room.tag, "n", "ms") for room in rooms]
            stored = [room for room, reply in zip(rooms, replies, strict=True) if ok(reply)]
            yield from self._say(stored)

    def _say(self, rooms: Iterable[QueueEntry]) -> Asking[None]:
        asks: list[ScriptCall] = []
        for room in rooms:
            room.made = True
            name, tail = f"{room.tenant}/{room.queue}", f"{room.ids.tail:014x}"
            asks.append(self.write.script("register_queue", self.tags.registry, name, tail, 1))
        if asks:
            for reply in (yield asks):
                ok(reply)

    def _learn(self, tenant: str, queue: str, value: bytes) -> QueueEntry:
        room = self._rooms.get((tenant, queue))
        if room is None:
            tag = self.tags.queue(tenant, queue)
            room = QueueEntry(tenant, queue, tag, int(value[:14], 16), made=value.endswith(b"+"))
            self._rooms[tenant, queue] = room
            self._tails[room.ids.tail] = room
        elif value.endswith(b"+"):
            room.made = True
        return room
