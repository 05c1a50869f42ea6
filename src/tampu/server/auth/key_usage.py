"""When each key was last used: kept in memory and stored once a minute, outside of requests."""

from __future__ import annotations

import time

import msgspec

from tampu.broker.core import Core
from tampu.engines.port import Engine, PutDocument
from tampu.model.decoders import from_json
from tampu.model.times import SECOND
from tampu.server.auth.key_cache import KeyCache
from tampu.server.auth.keys import TENANT

KIND = "key_use"
_EVERY_SECONDS = 60.0


class LastUse(msgspec.Struct, frozen=True):
    at_us: int


_read = from_json(LastUse).decode


class KeyUsage:
    def __init__(self, core: Core, key_cache: KeyCache) -> None:
        self._core = core
        self._key_cache = key_cache
        self._written = time.monotonic() - _EVERY_SECONDS + 1  # the first use is stored after a second

    async def write_sometimes(self) -> None:
        if time.monotonic() - self._written < _EVERY_SECONDS:
            return
        since, self._written = self._written, time.monotonic()
        for id, used in self._key_cache.used_since(since).items():
            at_us = self._core.engine.now() - round((time.monotonic() - used) * SECOND)
            value = msgspec.json.encode(LastUse(at_us))
            await self._core.coalescer.submit_async(PutDocument(KIND, TENANT, id, value))


def last_uses(engine: Engine) -> dict[str, int]:
    """Last use by key id, in microseconds since 1970; up to a minute late."""
    return {d.name: _read(d.value).at_us for d in engine.documents(KIND, TENANT)}
