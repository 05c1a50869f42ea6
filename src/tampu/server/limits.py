"""Rate limits per key and tenant, shared by all nodes, without an engine call per request; and limits on bad keys.

A bucket of tokens is a document. A node takes a slice of it by compare-and-set and spends the slice on its own; what it
does not spend soon is lost. Tokens leave the bucket before they are spent, so all nodes together never exceed the rate
and the burst. They may stay below, by at most one slice per node.
"""

from __future__ import annotations

import asyncio
import math
import time

import msgspec
import structlog

from tampu.broker.core import Core
from tampu.engines.port import Document, PutDocument
from tampu.model.decoders import from_json
from tampu.model.errors import RateLimited, TampuError, VersionConflict
from tampu.model.times import SECOND
from tampu.server.auth.grants import Caller
from tampu.server.auth.keys import TENANT

KIND = "bucket"
_SLICE_SECONDS = 0.5
_KEEP_SECONDS = 2.0
_TRIES = 10
_MOST = 10_000
_THROTTLE_SECONDS = 60.0
log = structlog.get_logger("tampu.server")


class Quota(msgspec.Struct, frozen=True):
    """A limit and what is left of it."""

    limit: int
    remaining: int
    reset: float
    """Seconds until the next message is accepted; 0 if it is accepted now."""

    def headers(self) -> dict[str, str]:
        return {
            "ratelimit-limit": str(self.limit),
            "ratelimit-remaining": str(self.remaining),
            "ratelimit-reset": str(int(self.reset + 0.999)),
        }


class OverLimit(RateLimited):
    """A rate limit of this server is used up. The response has it in its RateLimit headers, as every accepted one."""

    def __init__(
        self, message: str, quota: Quota, *, retry_after: float | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after, hint=hint)
        self.quota = quota


class Bucket(msgspec.Struct, frozen=True):
    tokens: float
    at_us: int


_read = from_json(Bucket).decode


class _Slice:
    __slots__ = ("burst", "lock", "name", "rate", "shared", "taken", "tokens")

    def __init__(self, name: str) -> None:
        self.name = name
        self.rate = 0.0
        self.burst = 0
        """The limits of today: those of a key may change."""
        self.tokens = 0.0
        """What this node may still spend without asking."""
        self.shared = 0.0
        """Tokens in the shared bucket when this node last read it; negative means debt."""
        self.taken = 0.0
        self.lock = asyncio.Lock()

    def spend(self, cost: int) -> bool:
        if self.tokens < cost or time.monotonic() - self.taken > _KEEP_SECONDS:
            return False
        self.tokens -= cost
        return True

    @property
    def quota(self) -> Quota:
        """What is left over all nodes, as far as this one knows: others may have spent some since."""
        left = min(float(self.burst), self.tokens + self.shared)
        return Quota(self.burst, max(0, int(left)), 0.0 if left >= 1 else (1 - left) / self.rate)


class Limits:
    def __init__(self, core: Core, key: tuple[float, int], tenant: tuple[float, int]) -> None:
        self._core = core
        self._key = key
        self._tenant = tenant
        self._slices: dict[str, _Slice] = {}

    def applies(self, caller: Caller) -> bool:
        """True if this caller has a limit."""
        return bool(caller.rate or self._key[0] or self._tenant[0])

    async def take(self, caller: Caller, cost: int) -> Quota:
        """Take ``cost`` tokens; raises `OverLimit` and takes none if there are not enough."""
        slices = self._slices_of(caller)
        spent = []
        try:
            for part in slices:
                if not part.spend(cost):
                    await self._fill(part, cost)
                spent.append(part)
        except OverLimit:
            for part in spent:
                part.tokens += cost
            raise
        return _least(slices)

    def most(self, caller: Caller, wanted: int) -> int:
        """How many messages the caller may get at once: its burst, or ``wanted`` if it has no limit."""
        return min((part.burst for part in self._slices_of(caller)), default=wanted) if self.applies(caller) else wanted

    async def charge(self, caller: Caller, cost: int) -> Quota:
        """Count messages that were delivered already. What the buckets lack is debt, which later calls wait for."""
        slices = self._slices_of(caller)
        for part in slices:
            if not part.spend(cost):
                await self._add_debt(part, cost)
        return _least(slices)

    def _slices_of(self, caller: Caller) -> list[_Slice]:
        slices = []
        if caller.bucket is not None and (caller.rate or self._key[0]):
            rate, burst = (caller.rate, caller.burst) if caller.rate else self._key
            slices.append(self._slice(caller.bucket, rate, burst))
        if self._tenant[0]:
            slices.append(self._slice(f"tenant.{caller.tenant}", *self._tenant))
        return slices

    def _slice(self, name: str, rate: float, burst: int) -> _Slice:
        found = self._slices.get(name)
        if found is None:
            if len(self._slices) >= _MOST:
                self._slices.clear()
            found = self._slices[name] = _Slice(name)
        found.rate = rate
        found.burst = burst or max(1, math.ceil(rate))
        return found

    async def _fill(self, part: _Slice, cost: int) -> None:
        async with part.lock:
            if part.spend(cost):
                return
            if time.monotonic() - part.taken > _KEEP_SECONDS:
                part.tokens = 0.0
            if cost > part.burst:
                await self._read_bucket(part)
                raise OverLimit(
                    f"{cost} messages in one request; the limit is {part.burst}",
                    part.quota,
                    hint="send smaller batches, or ask for a larger burst",
                )
            got, wait = await self._take_tokens(part, cost)
            if not got:
                quota = msgspec.structs.replace(part.quota, reset=wait)
                raise OverLimit(
                    f"over the limit of {part.rate:g} messages a second", quota, retry_after=wait, hint="slow down"
                )
            part.tokens += got - cost
            part.taken = time.monotonic()

    async def _add_debt(self, part: _Slice, cost: int) -> None:
        async with part.lock:
            held = max(0.0, part.tokens) if time.monotonic() - part.taken <= _KEEP_SECONDS else 0.0
            debt = cost - held
            # Kept here if the store cannot be reached: the messages were delivered, so this must not fail.
            part.tokens, part.taken = -debt, time.monotonic()
            try:
                for _ in range(_TRIES):
                    tokens, now, version = await self._read_bucket(part)
                    if await self._write_bucket(part, tokens - debt, now, version):
                        part.tokens = 0.0
                        return
            except TampuError as error:
                log.warning("store_unreachable", error=str(error))

    async def _take_tokens(self, part: _Slice, cost: int) -> tuple[float, float]:
        """(tokens taken from the shared bucket, 0), or (0, seconds to wait)."""
        need = cost - part.tokens
        for _ in range(_TRIES):
            tokens, now, version = await self._read_bucket(part)
            if tokens < need:
                return 0.0, (need - tokens) / part.rate
            take = min(tokens, max(need, part.rate * _SLICE_SECONDS))
            if await self._write_bucket(part, tokens - take, now, version):
                return take, 0.0
        return 0.0, 0.1  # many nodes wrote at once

    async def _read_bucket(self, part: _Slice) -> tuple[float, int, int]:
        """(tokens in the shared bucket now, the store's time, the bucket's version)"""
        document, now = await asyncio.to_thread(self._read_document, part.name)
        version, part.shared = 0, float(part.burst)
        if document is not None:
            old, version = _read(document.value), document.version
            part.shared = min(part.burst, old.tokens + max(0, now - old.at_us) / SECOND * part.rate)
        return part.shared, now, version

    async def _write_bucket(self, part: _Slice, tokens: float, now: int, version: int) -> bool:
        """False if another node wrote the bucket first."""
        value = msgspec.json.encode(Bucket(tokens, now))
        try:
            await self._core.coalescer.submit_async(PutDocument(KIND, TENANT, part.name, value, version))
        except VersionConflict:
            return False
        part.shared = tokens
        return True

    def _read_document(self, name: str) -> tuple[Document | None, int]:
        engine = self._core.engine
        return engine.document(KIND, TENANT, name), engine.now()


def _least(slices: list[_Slice]) -> Quota:
    return min((part.quota for part in slices), key=lambda quota: quota.remaining, default=Quota(0, 0, 0))


class Throttle:
    """Limits bad keys per address, on each node. Only refused requests are counted and limited.

    So bad keys from an address never delay a valid key from the same address.
    """

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._failed: dict[str, tuple[float, int]] = {}
        """By address: (start of the window, bad keys in it)."""

    def failed(self, address: str) -> None:
        """Count a bad key; raises `OverLimit` if there were too many."""
        now = time.monotonic()
        since, count = self._failed.pop(address, (now, 0))
        if now - since > _THROTTLE_SECONDS:
            since, count = now, 0
        while len(self._failed) >= _MOST:  # drop the oldest
            del self._failed[next(iter(self._failed))]
        self._failed[address] = (since, count + 1)
        if count >= self._attempts:
            left = since + _THROTTLE_SECONDS - now
            quota = Quota(self._attempts, 0, left)
            raise OverLimit("too many bad keys from this address", quota, retry_after=left, hint="wait a minute")
