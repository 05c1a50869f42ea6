"""`AsyncStore`, which `tampu.open_async` returns: the same verbs as coroutines. They never block the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from tampu.broker.atomic import Unit
from tampu.broker.core import Steps
from tampu.broker.store import AllVerbs, Part, Store, shown_as
from tampu.broker.streams.async_stream import AsyncStream
from tampu.model.errors import InvalidState
from tampu.model.times import Duration

P = ParamSpec("P")
R = TypeVar("R")


def awaitable(verb: Callable[Concatenate[Any, P], Steps[R]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The verb as a coroutine."""
    name = verb.__name__

    @functools.wraps(verb)
    async def method(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._drive(getattr(self._verbs, name)(*args, **kwargs))  # type: ignore[no-any-return]  # R, by the driver

    return shown_as(method, verb)  # type: ignore[no-any-return]  # wraps() names self; P is what matters


class AsyncQueues(Part):
    """The queues and their settings, by name; ``shop.*`` has those of a scope, ``*`` those of all queues."""

    put = awaitable(AllVerbs.put_config)
    get = awaitable(AllVerbs.get_config)
    sources = awaitable(AllVerbs.config_sources)
    list = awaitable(AllVerbs.list_queues)
    reset = awaitable(AllVerbs.reset_config)
    remove = awaitable(AllVerbs.remove_queue)


class AsyncSchedules(Part):
    """Messages that are published at set times, by name."""

    put = awaitable(AllVerbs.put_schedule)
    get = awaitable(AllVerbs.get_schedule)
    list = awaitable(AllVerbs.list_schedules)
    delete = awaitable(AllVerbs.delete_schedule)
    pause = awaitable(AllVerbs.pause_schedule)
    resume = awaitable(AllVerbs.resume_schedule)
    fire = awaitable(AllVerbs.fire_schedule)


class AsyncFollowers(Part):
    """Policies that act on what has happened, by name. They belong to the whole store, not to the tenant."""

    list = awaitable(AllVerbs.list_followers)
    resume = awaitable(AllVerbs.resume_follower)
    remove = awaitable(AllVerbs.remove_follower)


class AsyncAgents(Part):
    """Maintenance tasks and followers, by name. They belong to the whole store, not to the tenant."""

    list = awaitable(AllVerbs.list_agents)
    get = awaitable(AllVerbs.get_agent)
    run = awaitable(AllVerbs.run_agent)
    pause = awaitable(AllVerbs.pause_agent)
    resume = awaitable(AllVerbs.resume_agent)


class AsyncSchemas(Part):
    """JSON Schemas that payloads must match, by name."""

    put = awaitable(AllVerbs.put_schema)
    get = awaitable(AllVerbs.get_schema)
    list = awaitable(AllVerbs.list_schemas)
    delete = awaitable(AllVerbs.delete_schema)
    example = awaitable(AllVerbs.example_of_schema)


class AsyncRules(Part):
    """What happens to messages for which an expression is true, by name."""

    put = awaitable(AllVerbs.put_rule)
    get = awaitable(AllVerbs.get_rule)
    list = awaitable(AllVerbs.list_rules)
    delete = awaitable(AllVerbs.delete_rule)
    test = awaitable(AllVerbs.test_rule)


class AsyncSubscriptions(Part):
    """Who gets what is published to broadcast queues, by queue and subscriber."""

    put = awaitable(AllVerbs.put_subscription)
    get = awaitable(AllVerbs.get_subscription)
    list = awaitable(AllVerbs.list_subscriptions)
    delete = awaitable(AllVerbs.delete_subscription)


class AsyncAlerts(Part):
    """When to warn, by name."""

    put = awaitable(AllVerbs.put_alert)
    get = awaitable(AllVerbs.get_alert)
    list = awaitable(AllVerbs.list_alerts)
    delete = awaitable(AllVerbs.delete_alert)
    status = awaitable(AllVerbs.alert_status)


class AsyncHolds(Part):
    """Legal holds: what must not be removed, by name."""

    put = awaitable(AllVerbs.put_hold)
    get = awaitable(AllVerbs.get_hold)
    list = awaitable(AllVerbs.list_holds)
    delete = awaitable(AllVerbs.delete_hold)


class AsyncErasures(Part):
    """Reports of `AsyncStore.erase`, by id."""

    get = awaitable(AllVerbs.get_erasure)
    list = awaitable(AllVerbs.list_erasures)
    check = awaitable(AllVerbs.check_erasure)


class AsyncTopology(Part):
    """Everything that is configured, as one file: applied as one unit, and exported."""

    apply = awaitable(AllVerbs.apply_topology)
    export = awaitable(AllVerbs.export_topology)


class AsyncDead(Part):
    """Dead letters of all queues."""

    list = awaitable(AllVerbs.list_dead)
    groups = awaitable(AllVerbs.group_dead)
    replay = awaitable(AllVerbs.replay_dead)
    purge = awaitable(AllVerbs.purge_dead)
    replays = awaitable(AllVerbs.list_dead_replays)
    get = awaitable(AllVerbs.get_dead_replay)
    cancel = awaitable(AllVerbs.cancel_dead_replay)
    undo = awaitable(AllVerbs.undo_dead_replay)


class AsyncWebhooks(Part):
    """What rules and alerts send to urls."""

    put_secret = awaitable(AllVerbs.put_webhook_secret)
    has_secret = awaitable(AllVerbs.has_webhook_secret)


class AsyncPatterns(Part):
    """What reviewers see and decide, by name."""

    put = awaitable(AllVerbs.put_pattern)
    get = awaitable(AllVerbs.get_pattern)
    list = awaitable(AllVerbs.list_patterns)
    delete = awaitable(AllVerbs.delete_pattern)


class AsyncFlows(Part):
    """As `Flows`."""

    publish = awaitable(AllVerbs.publish_flow)
    add = awaitable(AllVerbs.add_to_flow)
    get = awaitable(AllVerbs.get_flow)
    list = awaitable(AllVerbs.list_flows)
    wait = awaitable(AllVerbs.wait_flow)
    cancel = awaitable(AllVerbs.cancel_flow)
    replay = awaitable(AllVerbs.replay_flow)


class AsyncReviews(Part):
    """Messages that wait for a person's decision, by the id of the message."""

    list = awaitable(AllVerbs.list_reviews)
    get = awaitable(AllVerbs.get_review)
    claim = awaitable(AllVerbs.claim_review)
    decide = awaitable(AllVerbs.decide_review)
    comment = awaitable(AllVerbs.comment_review)
    reassign = awaitable(AllVerbs.reassign_review)
    preview = awaitable(AllVerbs.preview_review)
    ask = awaitable(AllVerbs.ask_review)


class AsyncStore:
    """Client for the queues of one tenant. Use it with ``async with``; tasks may share it."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._store: Store | None = None
        self._inside: set[asyncio.Task[Any] | None] = set()
        """Tasks that are inside ``store.transaction()``."""

    async def __aenter__(self) -> Self:
        self._store = await asyncio.to_thread(self._open_store)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _open(self) -> Store:
        if self._store is None:
            raise InvalidState("this store is not open", hint="use it with: async with tampu.open_async(…) as store")
        return self._store

    @property
    def _verbs(self) -> AllVerbs:
        return self._open._verbs

    @property
    def tenant(self) -> str:
        return self._open.tenant

    @property
    def durability(self) -> str:
        """``full``, or the weaker durability that was configured."""
        return self._open.durability

    @property
    def queues(self) -> AsyncQueues:
        return AsyncQueues(self._verbs, self._drive)

    @property
    def schedules(self) -> AsyncSchedules:
        return AsyncSchedules(self._verbs, self._drive)

    @property
    def alerts(self) -> AsyncAlerts:
        return AsyncAlerts(self._verbs, self._drive)

    @property
    def webhooks(self) -> AsyncWebhooks:
        return AsyncWebhooks(self._verbs, self._drive)

    @property
    def agents(self) -> AsyncAgents:
        return AsyncAgents(self._verbs, self._drive)

    @property
    def followers(self) -> AsyncFollowers:
        return AsyncFollowers(self._verbs, self._drive)

    @property
    def schemas(self) -> AsyncSchemas:
        return AsyncSchemas(self._verbs, self._drive)

    @property
    def rules(self) -> AsyncRules:
        return AsyncRules(self._verbs, self._drive)

    @property
    def subscriptions(self) -> AsyncSubscriptions:
        return AsyncSubscriptions(self._verbs, self._drive)

    @property
    def holds(self) -> AsyncHolds:
        return AsyncHolds(self._verbs, self._drive)

    @property
    def erasures(self) -> AsyncErasures:
        return AsyncErasures(self._verbs, self._drive)

    @property
    def topology(self) -> AsyncTopology:
        return AsyncTopology(self._verbs, self._drive)

    @property
    def dead(self) -> AsyncDead:
        return AsyncDead(self._verbs, self._drive)

    @property
    def patterns(self) -> AsyncPatterns:
        return AsyncPatterns(self._verbs, self._drive)

    @property
    def reviews(self) -> AsyncReviews:
        return AsyncReviews(self._verbs, self._drive)

    @property
    def flows(self) -> AsyncFlows:
        return AsyncFlows(self._verbs, self._drive)

    publish = awaitable(AllVerbs.publish)
    publish_many = awaitable(AllVerbs.publish_many)
    claim = awaitable(AllVerbs.claim)
    ack = awaitable(AllVerbs.ack)
    nack = awaitable(AllVerbs.nack)
    reject = awaitable(AllVerbs.reject)
    release = awaitable(AllVerbs.release)
    settle = awaitable(AllVerbs.settle)
    extend = awaitable(AllVerbs.extend)
    get = awaitable(AllVerbs.get)
    result = awaitable(AllVerbs.result)
    messages = awaitable(AllVerbs.messages)
    cancel = awaitable(AllVerbs.cancel)
    free = awaitable(AllVerbs.free)
    replay = awaitable(AllVerbs.replay)
    purge = awaitable(AllVerbs.purge)
    erase = awaitable(AllVerbs.erase)
    stats = awaitable(AllVerbs.stats)
    journal = awaitable(AllVerbs.journal)
    audit = awaitable(AllVerbs.audit)
    trace = awaitable(AllVerbs.trace)
    pause = awaitable(AllVerbs.pause)
    resume = awaitable(AllVerbs.resume)
    drain = awaitable(AllVerbs.drain)
    close_queue = awaitable(AllVerbs.close_queue)
    get_document = awaitable(AllVerbs.get_document)

    @contextlib.asynccontextmanager
    async def atomic(self) -> AsyncIterator[Unit]:
        """Like `Store.atomic`. Calls on the unit are only collected: do not await them."""
        unit = Unit(self._verbs)
        try:
            yield unit
        finally:
            unit.end()
        await self._drive(unit.steps())

    def stream(
        self,
        queues: str | Sequence[str],
        *,
        credit: int = 32,
        lease: Duration | None = None,
        worker: str | None = None,
    ) -> AsyncStream:
        """Like `Store.stream`, in an ``async with`` block."""
        return AsyncStream(lambda: self._open.stream(queues, credit=credit, lease=lease, worker=worker))

    async def check(self) -> list[tuple[str, str, str]]:
        """Like `Store.check`."""
        return await asyncio.to_thread(self._open.check)

    async def close(self) -> None:
        """Like `Store.close`."""
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
            await self._store._core.leave_loop()

    @contextlib.asynccontextmanager
    async def transaction(self, connection: Any = None) -> AsyncIterator[AsyncTransaction]:
        """Like `Store.transaction`; its calls run in a thread of their own."""
        self._check_outside()
        task = asyncio.current_task()
        if connection is None:
            self._inside.add(task)
        thread = ThreadPoolExecutor(1, thread_name_prefix="tampu-transaction")
        try:
            async with self._entered(self._open.transaction(connection), thread) as tx:
                yield AsyncTransaction(tx, thread)
        finally:
            thread.shutdown(wait=False)  # the loop must not wait for it: it may wait for another task
            self._inside.discard(task)

    @contextlib.asynccontextmanager
    async def _entered(self, inner: Any, thread: ThreadPoolExecutor) -> AsyncIterator[Any]:
        """Enter and leave a context manager in a thread; leave it also if the task is cancelled while entering."""
        loop = asyncio.get_running_loop()
        try:
            tx = await asyncio.shield(loop.run_in_executor(thread, inner.__enter__))
        except asyncio.CancelledError as error:
            thread.submit(inner.__exit__, type(error), error, None)
            raise
        try:
            yield tx
        except BaseException as error:
            exit_with = functools.partial(inner.__exit__, type(error), error, error.__traceback__)
            if not await asyncio.shield(loop.run_in_executor(thread, exit_with)):
                raise
        else:
            await asyncio.shield(loop.run_in_executor(thread, inner.__exit__, None, None, None))

    def _check_outside(self) -> None:
        if self._inside and asyncio.current_task() in self._inside:
            raise InvalidState("this task is inside a transaction", hint="call the method on tx, or after the block")

    async def _drive(self, steps: Steps[R]) -> R:
        self._check_outside()
        core = self._open._core
        if not self._inside or self.durability != "memory":
            return await core.drive_async(steps)
        # Verbs read settings in this thread. In memory that waits for the transaction, which waits for this loop.
        loop = asyncio.get_running_loop()

        def do(step: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(core.do_async(step), loop).result()

        return await asyncio.to_thread(core.drive, steps, do)


class AsyncTransaction:
    """The verbs of `Transaction` as coroutines."""

    def __init__(self, tx: Any, thread: ThreadPoolExecutor) -> None:
        self._tx = tx
        self._thread = thread

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        verb = getattr(self._tx, name)
        if name.startswith("_") or not callable(verb):
            raise AttributeError(name)

        async def method(*args: Any, **kwargs: Any) -> Any:
            loop, context = asyncio.get_running_loop(), contextvars.copy_context()
            call = functools.partial(context.run, verb, *args, **kwargs)
            return await loop.run_in_executor(self._thread, call)

        return method
