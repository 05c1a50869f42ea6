"""Rates per key and tenant, the same for all nodes, without a question to the engine for each request.

A bucket is a document. A node takes a slice of it, by compare-and-set, and spends the slice by itself; what it does not
spend soon is lost to it. Tokens leave the bucket before they are spent, so all nodes together never give out more than
the rate and the burst allow; they may give out less, by at most one slice a node.
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
from tampu.model.errors import TampuError, VersionConflict
from tampu.model.times import SECOND
from tampu.server.auth.grants import Caller
from tampu.server.auth.keys import TENANT
from tampu.server.rate_limit import OverLimit, Quota

KIND = "bucket"
_SLICE_SECONDS = 0.5
_KEEP_SECONDS = 2.0
_TRIES = 10
_MOST = 10_000
log = structlog.get_logger("tampu.server")


class Bucket(msgspec.Struct, frozen=True):
    tokens: float
    at_us: int


_read = from_json(Bucket).decode


class _Slice:
    __slots__ = ("burst", "lock", "name", "rate", "shared", "taken", "tokens")

    def __init__(self, name: str, rate: float, burst: int) -> None:
        self.name = name
        self.rate = rate
        self.burst = burst or max(1, math.ceil(rate))
        self.tokens = 0.0
        """What this node may still spend by itself."""
        self.shared = 0.0
        """What was in the shared bucket when this node last looked; below 0 it is owed."""
        self.taken = 0.0
        self.lock = asyncio.Lock()

    def spend(self, cost: int) -> bool:
        if self.tokens < cost or time.monotonic() - self.taken > _KEEP_SECONDS:
            return False
        self.tokens -= cost
        return True

    @property
    def quota(self) -> Quota:
        """What all nodes may still give out, as far as this one knows: others may have spent some of it since."""
        left = min(float(self.burst), self.tokens + self.shared)
        return Quota(self.burst, max(0, int(left)), 0.0 if left >= 1 else (1 - left) / self.rate)


class Limits:
    def __init__(self, core: Core, key: tuple[float, int], tenant: tuple[float, int]) -> None:
        self._core = core
        self._key = key
        self._tenant = tenant
        self._slices: dict[str, _Slice] = {}

    def asked(self, caller: Caller) -> bool:
        """Is there any limit for this caller?"""
        return bool(caller.rate or self._key[0] or self._tenant[0])

    async def take(self, caller: Caller, cost: int) -> Quota:
        """Let ``cost`` messages through, or raise `OverLimit`; nothing is taken then."""
        slices = self._slices_of(caller)
        spent = []
        try:
            for one in slices:
                if not one.spend(cost):
                    await self._fill(one, cost)
                spent.append(one)
        except OverLimit:
            for one in spent:
                one.tokens += cost
            raise
        return _least(slices)

    def most(self, caller: Caller, asked: int) -> int:
        """How many of so many may be handed out at once."""
        return min((one.burst for one in self._slices_of(caller)), default=asked) if self.asked(caller) else asked

    async def charge(self, caller: Caller, cost: int) -> Quota:
        """Count what was handed out already: what the buckets do not hold, they owe, and later calls wait for it."""
        slices = self._slices_of(caller)
        for one in slices:
            if not one.spend(cost):
                await self._owe(one, cost)
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
        if found is None or found.rate != rate:
            if len(self._slices) >= _MOST:
                self._slices.clear()
            found = self._slices[name] = _Slice(name, rate, burst)
        return found

    async def _fill(self, one: _Slice, cost: int) -> None:
        async with one.lock:
            if one.spend(cost):
                return
            if time.monotonic() - one.taken > _KEEP_SECONDS:
                one.tokens = 0.0
            if cost > one.burst:
                await self._look(one)
                raise OverLimit(
                    f"{cost} at once; {one.burst} is the most",
                    one.quota,
                    hint="send smaller batches, or ask for a larger burst",
                )
            got, wait = await self._lease(one, cost)
            if not got:
                quota = msgspec.structs.replace(one.quota, reset=wait)
                raise OverLimit(f"more than {one.rate:g} messages a second", quota, retry_after=wait, hint="slow down")
            one.tokens += got - cost
            one.taken = time.monotonic()

    async def _owe(self, one: _Slice, cost: int) -> None:
        async with one.lock:
            held = max(0.0, one.tokens) if time.monotonic() - one.taken <= _KEEP_SECONDS else 0.0
            left = cost - held
            # This node remembers it when the store can not: what was handed out must not be lost over its cost.
            one.tokens, one.taken = -left, time.monotonic()
            try:
                for _ in range(_TRIES):
                    tokens, now, version = await self._look(one)
                    if await self._store(one, tokens - left, now, version):
                        one.tokens = 0.0
                        return
            except TampuError as error:
                log.warning("store_unreachable", error=str(error))

    async def _lease(self, one: _Slice, cost: int) -> tuple[float, float]:
        """(tokens taken from the shared bucket, or none and how long to wait)"""
        need = cost - one.tokens
        for _ in range(_TRIES):
            tokens, now, version = await self._look(one)
            if tokens < need:
                return 0.0, (need - tokens) / one.rate
            take = min(tokens, max(need, one.rate * _SLICE_SECONDS))
            if await self._store(one, tokens - take, now, version):
                return take, 0.0
        return 0.0, 0.1  # many nodes at once: come back

    async def _look(self, one: _Slice) -> tuple[float, int, int]:
        """(tokens in the shared bucket now, the store's time, the bucket's version)"""
        found, now = await asyncio.to_thread(self._read, one.name)
        version, one.shared = 0, float(one.burst)
        if found is not None:
            old, version = _read(found.value), found.version
            one.shared = min(one.burst, old.tokens + max(0, now - old.at_us) / SECOND * one.rate)
        return one.shared, now, version

    async def _store(self, one: _Slice, tokens: float, now: int, version: int) -> bool:
        value = msgspec.json.encode(Bucket(tokens, now))
        try:
            await self._core.coalescer.submit_async(PutDocument(KIND, TENANT, one.name, value, version))
        except VersionConflict:
            return False
        one.shared = tokens
        return True

    def _read(self, name: str) -> tuple[Document | None, int]:
        engine = self._core.engine
        return engine.document(KIND, TENANT, name), engine.now()


def _least(slices: list[_Slice]) -> Quota:
    return min((one.quota for one in slices), key=lambda quota: quota.remaining, default=Quota(0, 0, 0))
