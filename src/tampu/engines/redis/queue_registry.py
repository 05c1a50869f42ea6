"""The queue registry: which queues exist, and the tail of the ids of each.

A queue is registered before anything is stored in it, so maintenance finds everything that is stored. It exists once a
message was stored or it has settings. The cache here only saves requests: an entry is written once and never changes.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from tampu.engines.redis import ids
from tampu.engines.redis.connection.script_calls import Operation, ScriptCall, Writer, ok
from tampu.engines.redis.tags import Tags
from tampu.model.errors import StorageError

_SALTS = 16


class QueueEntry:
    """One registered queue. ``exists`` once it has messages or settings."""

    __slots__ = ("exists", "ids", "queue", "tag", "tenant")

    def __init__(self, tenant: str, queue: str, tag: str, made: ids.Ids, *, exists: bool) -> None:
        self.tenant = tenant
        self.queue = queue
        self.tag = tag
        self.ids = made
        self.exists = exists

    @property
    def partition(self) -> str:
        """Name of this queue's journal partition."""
        return f"{self.tenant}/{self.queue}"


class QueueRegistry:
    def __init__(self, tags: Tags, write: Writer, *, sharded: bool = False) -> None:
        self.tags = tags
        self.write = write
        self.sharded = sharded
        """True if queues may be on different servers."""
        self.secret = b""
        self.since = ""
        """How ids are made, see `ids`. Set by `open_ids`."""
        self._entries: dict[tuple[str, str], QueueEntry] = {}
        self._tails: dict[str, set[QueueEntry]] = {}
        """By what is said of the queue in an id, the last 54 bits or the first 22 of these."""

    def open_ids(self) -> Operation[None]:
        """Read how ids are made. In a store of layout 4 or older, those of later numbers will have a secret tail."""
        read = self.write.plain("HMGET", self.tags.registry, "n", "secret", "since")
        (reply,) = yield [read]
        if None in ok(reply):
            (queues,) = yield [self.list_call()]
            newest = 0
            for raw, tail in zip(ok(queues)[::2], queues[1::2], strict=True):
                name = raw.decode()
                ms, added = yield [
                    self.write.plain("HGET", self.tags.queue(*name.split("/", 1)), "n", "ms"),
                    self.write.script("register_queue", self.tags.registry, name, tail[:14], 0),
                ]
                ok(added)
                newest = max(newest, int(ok(ms) or 0) + 1 << 20)
            for field, value in (("since", f"{newest:016x}"), ("secret", secrets.token_hex(16))):
                (reply,) = yield [self.write.plain("HSETNX", self.tags.registry, "n", field, value)]
                ok(reply)  # the first process decides
            (reply,) = yield [read]
        secret, begun = ok(reply)
        self.secret, self.since = bytes.fromhex(secret.decode()), begun.decode()

    def forget(self) -> None:
        """Empty the cache: after a failover the server may have older data."""
        self._entries, self._tails = {}, {}

    def cached(self) -> list[QueueEntry]:
        """Queues that exist, as far as the cache knows."""
        return [entry for entry in list(self._entries.values()) if entry.exists]

    def find(self, tenant: str, queue: str) -> Operation[QueueEntry | None]:
        """The queue if it is registered; it may not exist yet."""
        entry = self._entries.get((tenant, queue))
        if entry is None:
            (reply,) = yield [self.write.plain("HGET", self.tags.registry, "queues", f"{tenant}/{queue}")]
            if ok(reply) is None:
                return None
            entry = self._remember(tenant, queue, reply)
        return entry

    def find_many(self, tenant: str, queues: Sequence[str]) -> Operation[list[QueueEntry | None]]:
        """`find` for many; one request for those that are not cached."""
        entries = {queue: self._entries.get((tenant, queue)) for queue in queues}
        missing = [queue for queue, entry in entries.items() if entry is None]
        if missing:
            names = [f"{tenant}/{queue}" for queue in missing]
            (reply,) = yield [self.write.plain("HMGET", self.tags.registry, "queues", *names)]
            for queue, value in zip(missing, ok(reply), strict=True):
                if value is not None:
                    entries[queue] = self._remember(tenant, queue, value)
        return [entries[queue] for queue in queues]

    def find_existing(self, tenant: str, queue: str) -> Operation[QueueEntry | None]:
        """The queue if it exists."""
        entry = yield from self.find(tenant, queue)
        if entry is not None and not entry.exists:
            yield from self._check_stored([entry])
        return entry if entry is not None and entry.exists else None

    def known(self, tenant: str, queue: str) -> QueueEntry | None:
        """The queue, if it was registered or found before."""
        return self._entries.get((tenant, queue))

    def register(self, tenant: str, queue: str) -> Operation[QueueEntry]:
        """The queue; registers it if it is new."""
        entry = self._entries.get((tenant, queue))
        return entry if entry is not None else (yield from self._write_entry(tenant, queue, exists=False))

    def confirm(self, entry: QueueEntry) -> Operation[None]:
        """Mark the queue as existing: a message was stored in it."""
        exists = yield from self._write_entry(entry.tenant, entry.queue, exists=True)
        entry.exists = exists.exists = True

    def _write_entry(self, tenant: str, queue: str, *, exists: bool) -> Operation[QueueEntry]:
        for salt in range(_SALTS):
            tail = f"{ids.tail_of(tenant, queue, salt, self.secret):014x}"
            (reply,) = yield [
                self.write.script("register_queue", self.tags.registry, f"{tenant}/{queue}", tail, 1 if exists else 0)
            ]
            if ok(reply) is not None:
                return self._remember(tenant, queue, reply)
        raise StorageError(f"found no free id range for queue {queue}", hint="use another queue name")

    def by_ids(self, wanted: Iterable[str]) -> Operation[dict[str, tuple[QueueEntry, str]]]:
        """{id: (queue, number)} of those ids that this store makes; one request for queues that are not cached."""
        parsed = {id: found for id in wanted if (found := ids.parse(id)) is not None}
        keys = {
            id: f"{tail:014x}" if number <= self.since else f"{tail >> 32:06x}" for id, (tail, number) in parsed.items()
        }
        missing = list(dict.fromkeys(keys[id] for id in parsed if self._owner(keys[id], id) is None))
        if missing:
            (reply,) = yield [self.write.plain("HMGET", self.tags.registry, "tails", *missing)]
            for names in ok(reply):
                for name in (names or b"").decode().split():
                    yield from self.find(*name.split("/", 1))
        owners = ((id, number, self._owner(keys[id], id)) for id, (_, number) in parsed.items())
        return {id: (entry, number) for id, number, entry in owners if entry is not None}

    def _owner(self, key: str, id: str) -> QueueEntry | None:
        """The queue, of those in the cache, that makes this id."""
        return next((entry for entry in self._tails.get(key, ()) if entry.ids.number(id) is not None), None)

    def all(self, tenant: str | None = None) -> Operation[list[QueueEntry]]:
        """All queues that exist, of one tenant or of all, sorted by name."""
        (reply,) = yield [self.list_call()]
        return (yield from self.read_list(ok(reply), tenant))

    def list_call(self) -> ScriptCall:
        return self.write.plain("HGETALL", self.tags.registry, "queues")

    def read_list(self, flat: Sequence[bytes], tenant: str | None = None) -> Operation[list[QueueEntry]]:
        """The queues of `all`, from the reply to `list_call`."""
        entries = []
        for name, value in zip(flat[::2], flat[1::2], strict=True):
            owner, _, queue = name.decode().partition("/")
            if tenant is None or owner == tenant:
                entries.append(self._remember(owner, queue, value))
        yield from self._check_stored([entry for entry in entries if not entry.exists])
        return sorted((entry for entry in entries if entry.exists), key=lambda entry: (entry.tenant, entry.queue))

    def _check_stored(self, entries: list[QueueEntry]) -> Operation[None]:
        """Mark those that have messages: a process may have died between storing a message and `confirm`."""
        if entries:
            replies = yield [self.write.plain("HEXISTS", entry.tag, "n", "ms") for entry in entries]
            stored = [entry for entry, reply in zip(entries, replies, strict=True) if ok(reply)]
            yield from self._mark_existing(stored)

    def _mark_existing(self, entries: Iterable[QueueEntry]) -> Operation[None]:
        calls: list[ScriptCall] = []
        for entry in entries:
            entry.exists = True
            name, tail = f"{entry.tenant}/{entry.queue}", f"{entry.ids.tail:014x}"
            calls.append(self.write.script("register_queue", self.tags.registry, name, tail, 1))
        if calls:
            for reply in (yield calls):
                ok(reply)

    def _remember(self, tenant: str, queue: str, value: bytes) -> QueueEntry:
        entry = self._entries.get((tenant, queue))
        if entry is None:
            tag = self.tags.queue(tenant, queue)
            made = ids.Ids(int(value[:14], 16), self.secret, self.since)
            entry = QueueEntry(tenant, queue, tag, made, exists=value.endswith(b"+"))
            self._entries[tenant, queue] = entry
            for key in (value[:14].decode(), value[:6].decode()):
                self._tails.setdefault(key, set()).add(entry)
        elif value.endswith(b"+"):
            entry.exists = True
        return entry


class RunContext:
    """What one run of the engine changed, to tell the listener afterwards."""

    def __init__(self, registry: QueueRegistry) -> None:
        self.registry = registry
        self.write: Writer = registry.write
        self.ready: dict[tuple[str, str], int] = {}
        self.leases_expired: dict[tuple[str, str], tuple[int, int]] = {}
        self.due: int | None = None

    def became_ready(self, queue: tuple[str, str], count: int) -> None:
        self.ready[queue] = self.ready.get(queue, 0) + count

    def read_reply(self, entry: QueueEntry, reply: Any) -> list[Any]:
        """Record how many messages became ready and when the next work is due. Returns the rest of the reply."""
        rest: list[Any]
        newly_ready, due, *rest = ok(reply)
        if newly_ready:
            self.became_ready((entry.tenant, entry.queue), newly_ready)
        if due is not None and (self.due is None or due < self.due):
            self.due = due
        return rest

    def swept(self, entry: QueueEntry, counts: list[Any]) -> int:
        """Record the leases that expired in a sweep. Returns how many messages it moved."""
        moved, back, dead = counts
        if back or dead:
            name = (entry.tenant, entry.queue)
            back_before, dead_before = self.leases_expired.get(name, (0, 0))
            self.leases_expired[name] = (back_before + back, dead_before + dead)
        return int(moved)
