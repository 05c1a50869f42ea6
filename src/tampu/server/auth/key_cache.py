"""Cache of keys: read when first used, read again when a document changes, so a revoked key is dropped at once."""

from __future__ import annotations

import asyncio
import threading
import time

import msgspec
import structlog

from tampu.broker.core import Core
from tampu.engines.port import Engine, PutDocument
from tampu.model.decoders import from_json
from tampu.model.errors import Unauthorized
from tampu.model.times import SECOND
from tampu.server.auth import keys
from tampu.server.auth.grants import ALL_TENANTS, Caller
from tampu.server.auth.keys import Key

log = structlog.get_logger("tampu.server")
_MOST = 10_000
_USE = "key_use"
"""The kind of the documents that say when a key was last used."""
_WRITE_SECONDS = 60.0
_REFRESH_SECONDS = 30.0
"""All keys are read again this often, whatever was announced: somebody may have restored a backup."""


class Known:
    """A key that was found valid, until when, and its caller in each tenant."""

    __slots__ = ("callers", "key", "secret_hash", "used", "valid_until")

    def __init__(self, key: Key, secret_hash: bytes, valid_until: float | None) -> None:
        self.key = key
        self.secret_hash = secret_hash
        self.valid_until = valid_until
        self.used = 0.0
        """When it was last used (monotonic clock); `KeyUsage` stores it now and then."""
        self.callers: dict[str, Caller] = {}

    def drop(self) -> None:
        for caller in list(self.callers.values()):
            caller.dropped = True

    def as_tenant(self, tenant: str) -> Caller:
        known = self.callers.get(tenant)
        if known is None:
            if len(self.callers) > 1000:
                self.drop()
                self.callers.clear()
            key = self.key
            known = self.callers[tenant] = Caller(
                tenant,
                key.name,
                key.grants,
                key_id=key.id,
                rate=key.rate,
                burst=key.burst,
                valid_until=self.valid_until,
            )
        return known


class KeyCache:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: dict[tuple[str, bytes], Known] = {}
        self._hashes: dict[str, list[bytes]] = {}
        """Of keys that sign their requests."""
        self._refreshed = 0
        """Number of refreshes. A key that was read before the last one may be outdated."""
        self._changes = -1
        """The version of `keys.CHANGES` at the last refresh."""
        self._next_refresh = 0.0
        self._lock = threading.Lock()

    def find(self, id: str, secret_hash: bytes) -> Known | None:
        """A cached key; no engine call."""
        known = self._known.get((id, secret_hash))
        if known is not None and known.valid_until is not None and time.monotonic() >= known.valid_until:
            del self._known[id, secret_hash]
            return None
        return known

    def known_hashes(self, id: str) -> list[bytes]:
        """What `hashes` has found before, as long as one of them is in use. A rotated key may have another by now."""
        found = self._hashes.get(id, [])
        return found if any(self.find(id, each) for each in found) else []

    async def hashes(self, id: str) -> list[bytes]:
        """The hashes of the valid secrets of a key; none for an unknown or revoked one."""
        before = self._refreshed
        key, now = await asyncio.to_thread(lambda: (self.by_id(id), self._core.engine.now()))
        found = [] if key is None else key.hashes(now)
        with self._lock:
            if found and before == self._refreshed:
                if len(self._hashes) >= _MOST:
                    self._hashes.clear()
                self._hashes[id] = found
        return found

    async def check(self, id: str, secret_hash: bytes) -> Known:
        """Read the key from the store and cache it; raises `Unauthorized` if it is not valid."""
        while True:
            before = self._refreshed
            known = await asyncio.to_thread(self._read, id, secret_hash)
            if known is None:
                raise Unauthorized("invalid, expired or revoked key", hint="check it for typing errors, or use another")
            if self._keep(known, before):
                return known

    def _keep(self, known: Known, before: int) -> bool:
        """Cache a key; False if a refresh ran meanwhile. The refresh did not check this key, which may be revoked."""
        with self._lock:
            if before != self._refreshed:
                return False
            if len(self._known) >= _MOST:
                for old in self._known.values():
                    old.drop()
                self._known.clear()
            self._known[known.key.id, known.secret_hash] = known
            return True

    def _read(self, id: str, secret_hash: bytes) -> Known | None:
        engine = self._core.engine
        document = engine.document(keys.KIND, keys.TENANT, id)
        # An unknown key takes as long to refuse as a known one with a wrong secret.
        key = keys.decode(document) if document is not None else _NOBODY
        now = engine.now()
        if not key.is_valid(secret_hash, now):
            return None
        ends_us = key.ends_us(secret_hash)
        return Known(key, secret_hash, None if ends_us is None else time.monotonic() + (ends_us - now) / SECOND)

    def refresh(self) -> list[str]:
        """Read the cached keys again after a change of documents. Returns the ids of changed and revoked ones.

        Most changes are of other documents, such as rate limits. The version of one document says if it was a key.
        """
        document = self._core.engine.document(keys.CHANGES, keys.TENANT, keys.CHANGES)
        changes = 0 if document is None else document.version
        if changes == self._changes and time.monotonic() < self._next_refresh:
            return []
        gone = self._read_all()
        self._changes, self._next_refresh = changes, time.monotonic() + _REFRESH_SECONDS
        return gone

    def _read_all(self) -> list[str]:
        gone = []
        # Read all before dropping any: if a read fails, the next refresh must still report every changed key.
        with self._lock:
            self._refreshed += 1
            self._hashes.clear()
            known = list(self._known.items())
        read = [(place, old, self._read(*place)) for place, old in known]
        for (id, secret_hash), old, new in read:
            if new is None:
                self._known.pop((id, secret_hash), None)
                old.drop()
                gone.append(id)
            elif new.key != old.key:
                self._known[id, secret_hash] = new
                old.drop()
                gone.append(id)  # it may have lost a permission, so its long polls must authenticate again
            else:
                old.valid_until = new.valid_until
        return gone

    def used_since(self, moment: float) -> dict[str, float]:
        """Keys used since then: last use (monotonic clock) by id."""
        used: dict[str, float] = {}
        for (id, _), known in list(self._known.items()):
            if known.used > moment:
                used[id] = max(known.used, used.get(id, 0.0))
        return used

    def by_id(self, id: str) -> Key | None:
        document = self._core.engine.document(keys.KIND, keys.TENANT, id)
        return None if document is None else keys.decode(document)


_NOBODY = Key("", ALL_TENANTS, "", bytes(32), (), 0, expires_us=0)


class LastUse(msgspec.Struct, frozen=True):
    at_us: int


_read_use = from_json(LastUse).decode


class KeyUsage:
    """When each key was last used: kept in memory and stored once a minute, outside of requests."""

    def __init__(self, core: Core, key_cache: KeyCache) -> None:
        self._core = core
        self._key_cache = key_cache
        self._written = time.monotonic() - _WRITE_SECONDS + 1  # the first use is stored after a second

    async def write_sometimes(self) -> None:
        if time.monotonic() - self._written < _WRITE_SECONDS:
            return
        since, self._written = self._written, time.monotonic()
        for id, used in self._key_cache.used_since(since).items():
            at_us = self._core.engine.now() - round((time.monotonic() - used) * SECOND)
            value = msgspec.json.encode(LastUse(at_us))
            await self._core.coalescer.submit_async(PutDocument(_USE, keys.TENANT, id, value))


def last_uses(engine: Engine) -> dict[str, int]:
    """Last use by key id, in microseconds since 1970; up to a minute late."""
    return {d.name: _read_use(d.value).at_us for d in engine.documents(_USE, keys.TENANT)}
