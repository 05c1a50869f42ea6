"""What the requests of one running server share. Nothing in its memory is needed for correctness."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import structlog

import tampu
from tampu import tracing
from tampu.broker import access
from tampu.broker.core import Steps, WaitForMessages
from tampu.broker.store import AllVerbs
from tampu.model.errors import TampuError
from tampu.model.message import Lease
from tampu.model.outcome import Release
from tampu.server.auth.authenticate import Authenticator
from tampu.server.auth.grants import ALL_TENANTS, Caller
from tampu.server.auth.key_cache import KeyUsage
from tampu.server.budget import Budget
from tampu.server.claim_sizes import ClaimSizes
from tampu.server.console.lake import Reports
from tampu.server.console.last_hour import LastHour
from tampu.server.events.feed import Types
from tampu.server.events.tail import Completion, Tail
from tampu.server.http.long_polls import Poll, Polls
from tampu.server.limits import Limits
from tampu.server.listings import Listings
from tampu.server.metrics.registry import Metrics
from tampu.server.settings import ServerSettings
from tampu.server.spark.spark_store import SparkStore

R = TypeVar("R")
log = structlog.get_logger("tampu.server")
WATCH_SECONDS = 0.1
STALE_SECONDS = 30.0
"""A background loop without an iteration for this long counts as stuck."""
_ROUTE_SECONDS = 0.5
_MOST_ROUTES = 10_000


class _Verbs(AllVerbs):
    """Verbs without spans of their own: the request has the span."""

    traced = False


class ServerState:
    """Made by `open_server_state`; `watch` runs while the server does."""

    def __init__(self, store: tampu.Store, settings: ServerSettings) -> None:
        self.settings = settings
        self.core = access.core(store)
        self._close = store.close
        self.polls = Polls()
        self.authenticator = Authenticator(self.core, settings)
        self.limits = Limits(
            self.core,
            (settings.key_rate, settings.key_burst),
            (settings.tenant_rate, settings.tenant_burst),
        )
        self.budget = Budget(settings)
        self.listings = Listings(self.core, self.budget)
        self.claim_sizes = ClaimSizes()
        self.metrics = Metrics(self)
        self.tail = Tail(self.core, self.listings)
        self.completion = Completion(self.tail)
        self.types = Types(self.core, self.listings)
        self.last_hour = LastHour(self.core.engine)
        self.reports = Reports()
        self._spark_store: SparkStore | None = None
        self.sqs: Any = None
        """What requests of SQS clients share, once there was one; see `tampu.server.sqs.handler`."""
        self._key_usage = KeyUsage(self.core, self.authenticator.key_cache)
        self._verbs: dict[str, AllVerbs] = {}
        self.fast_routes: dict[Any, Any] = {}
        """Requests that were authorized before. Dropped when a document changes, and every half second."""
        self._routes_until = 0.0
        self._clock_until = 0.0
        self._ids = itertools.count(1)
        self._id_start = secrets.token_hex(6)
        self._revision = -1
        self._ahead_us = 0
        self.traced = tracing.on()
        self.watched_at = 0.0
        """When the store was last checked for changes (monotonic clock)."""
        self.core.settings.watched = True

    @property
    def revision(self) -> int:
        """Changes with any document: then what was cached of documents is to be read again."""
        return self._revision

    # -- verbs

    def verbs(self, tenant: str) -> AllVerbs:
        known = self._verbs.get(tenant)
        if known is None:
            if len(self._verbs) > 10_000:
                self._verbs.clear()
            known = self._verbs[tenant] = _Verbs(self.core, tenant)
        return known

    async def load_settings(self, tenant: str, *queues: str) -> None:
        """Read the settings of queues that are not cached yet, in a thread."""
        settings = self.core.settings
        for queue in queues:
            if not settings.knows(tenant, queue):
                await asyncio.to_thread(settings.get, tenant, queue)

    def max_payload(self, tenant: str, queue: str) -> int:
        """Maximum bytes of a payload or a result of the queue; `load_settings` was called before."""
        return self.core.settings.get(tenant, queue).max_payload

    async def drive(self, steps: Steps[R], poll: Poll | None = None) -> R:
        """Carry out a verb. If it waits for messages, ``poll`` can end the wait."""
        if poll is None:
            done = await self.core.drive_async(steps)
            self.tail.wake()
            return done

        async def do(step: Any) -> Any:
            if isinstance(step, WaitForMessages):
                return await poll.pause(self.core, step)
            return await self.core.do_async(step)

        self.polls.join(poll)
        try:
            return await self.core.drive_async(steps, do)
        finally:
            self.polls.leave(poll)
            self.tail.wake()

    async def release(self, caller: Caller, leases: list[Lease]) -> None:
        """Release messages that were claimed for a caller that is gone; the attempt does not count."""
        await self.drive(self.verbs(caller.tenant).settle([Release(lease) for lease in leases]))

    def spark_store(self) -> SparkStore:
        """The store as Spark uses it. Arrow is loaded at the first call."""
        if self._spark_store is None:
            self._spark_store = SparkStore(self.core)
        return self._spark_store

    def add_fast_route(self, key: Any, route: Any) -> None:
        """Let similar requests skip authorization for a moment."""
        if len(self.fast_routes) >= _MOST_ROUTES:
            self.fast_routes.clear()
        self.fast_routes[key] = route

    def request_id(self) -> str:
        return f"{self._id_start}{next(self._ids):08x}"

    async def of_all_tenants(self, caller: Caller) -> bool:
        """True if the caller's key may act in every tenant."""
        if caller.key_id is None:
            return not self.settings.auth
        key = await asyncio.to_thread(self.authenticator.key_cache.by_id, caller.key_id)
        return key is not None and key.tenant == ALL_TENANTS

    def now_us(self) -> int:
        """The store's time, estimated from the local clock."""
        return time.time_ns() // 1000 + self._ahead_us

    @property
    def maintenance_alive(self) -> bool:
        maintenance = self.core.maintenance
        return (
            maintenance is not None and maintenance.alive and time.monotonic() - maintenance.last_run_at < STALE_SECONDS
        )

    # -- following changes made by other nodes

    async def watch(self) -> None:
        """Follow changes of documents: queue settings and keys."""
        while True:
            try:
                # Fast routes are added and dropped on the event loop only, so none is added for a key that is gone.
                if time.monotonic() >= self._routes_until:  # keys can expire, and their use must be recorded
                    self._routes_until = time.monotonic() + _ROUTE_SECONDS
                    self.fast_routes.clear()
                before = self._revision
                gone = await asyncio.to_thread(self._look)
                if self._revision != before:
                    self.fast_routes.clear()
                    self.authenticator.sessions.forget()
                self.watched_at = time.monotonic()
                self.polls.expire(self.watched_at)
                for id in gone:
                    self.polls.revoke(id)
                await self._key_usage.write_sometimes()
            except TampuError as error:
                log.warning("store_unreachable", error=str(error))
            await asyncio.sleep(WATCH_SECONDS)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the background work inside the block."""
        task = asyncio.create_task(self.watch(), name="tampu-watch")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _look(self) -> list[str]:
        """Reload what changed; returns the ids of keys that were changed or revoked."""
        revision = self.core.engine.revision()
        if time.monotonic() >= self._clock_until:
            self._clock_until = time.monotonic() + _ROUTE_SECONDS
            self._ahead_us = self.core.engine.now() - time.time_ns() // 1000
            self.traced = tracing.on()
        if revision == self._revision:
            return []
        self.core.settings.refresh()
        gone = self.authenticator.key_cache.refresh()
        self._revision = revision  # last: after an error everything is read again
        return gone

    # -- the end

    def stop(self) -> None:
        """End the long polls with an empty answer; other requests go on."""
        self.polls.stop()

    def close(self) -> None:
        """Close the store; another process takes over its maintenance."""
        self.listings.close()
        self._close()


def open_server_state(settings: ServerSettings, *, clock: Any = None) -> ServerState:
    store = tampu.open(
        settings.url,
        durability=settings.durability,
        journal_retention=settings.journal_retention,
        maintenance=settings.maintenance,
        clock=clock,
        private_webhooks=settings.private_webhooks,
    )
    try:
        return ServerState(store, settings)
    except BaseException:
        store.close()
        raise
