"""The Redis and Valkey engine: opens the server, runs calls in pipelines, answers reads.

What each verb does is in its own file, and in its own script.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from tampu.engines import port
from tampu.engines.merged_claims import run_joined
from tampu.engines.redis import (
    admin,
    checks,
    claim,
    documents,
    journal,
    load,
    publish,
    read,
    scripts,
    settle,
    sweep,
    transfer,
    units,
    urls,
)
from tampu.engines.redis.peers import Peers
from tampu.engines.redis.queue_registry import QueueRegistry
from tampu.engines.redis.run_context import RunContext
from tampu.engines.redis.script_calls import Asking, ScriptCall, Writer, ok
from tampu.engines.redis.tags import Tags
from tampu.engines.redis.wire import Wire
from tampu.engines.transfer import Import, RequestPage, SnapshotPage, StartJournal
from tampu.model.errors import SchemaMismatch, TampuError, Unavailable
from tampu.model.journal import JournalPage, Position
from tampu.model.message import Message, State
from tampu.model.times import SECOND, Clock

R = TypeVar("R")
Work = tuple[list[int], Asking[Any]]
"""Places of calls in a run, and the operation that answers them (one answer, or a list when they were put together)."""

# Calls in the order they are sent: claims come last, so they see what arrives with them.
_ALONE: tuple[tuple[type[Any], Callable[[RunContext, Any], Asking[Any]]], ...] = (
    (StartJournal, transfer.start_journal),
    (port.PutDocument, documents.put),
    (port.DeleteDocument, documents.delete),
    (port.Extend, settle.extend),
    (port.Publish, publish.publish),
    (port.Load, load.load),
    (Import, transfer.import_messages),
    (port.Cancel, lambda context, call: admin.steer(context, "cancel", call)),
    (port.Free, lambda context, call: admin.steer(context, "release_held", call)),
    (port.Replay, lambda context, call: admin.steer(context, "replay", call)),
    (port.Together, units.together),
    (port.Purge, admin.purge),
    (port.Rerank, admin.rerank),
    (port.Regroup, admin.regroup),
    (port.Trim, sweep.trim),
    (port.Sweep, sweep.sweep),
    (port.Claim, claim.claim),
)
LAYOUT = 4
"""Of the keys; docs/reference/redis-layout.md tells it."""
_STORING = frozenset(scripts.digest(name) for name in ("publish_simple", "publish", "load", "import_messages", "unit"))
_SOON = SECOND
"""Keepers look by themselves this often; only what is due sooner needs the bell."""


class RedisEngine:
    """See `tampu.engines.port.Engine` for the contract."""

    capabilities = frozenset({"group_order", "load", "atomic:isolated"})
    schema = LAYOUT

    def __init__(self, url: str, *, clock: Clock | None = None, durability: str | None = None) -> None:
        self.place = urls.parse(url)
        if self.place.cluster:
            self.capabilities = self.capabilities - {"atomic:isolated"} | {"atomic:eventual"}
        self._clock = clock
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.Lock()
        self._listener: port.Listener | None = None
        self.wire = Wire(self.place)
        try:
            layout = self._read_layout()
            servers = [checks.look(self.wire, node) for node in self.wire.route.masters()]
            self.durability = checks.admit(servers, durability or self.place.durability)
            self._note_layout(layout)
        except BaseException:
            self.wire.close()
            raise
        tags = Tags(self.place.prefix)
        self._write = Writer(clock)
        self.registry = QueueRegistry(tags, self._write, sharded=self.place.cluster)
        self.wire.on_lost = self.registry.forget
        self.company = Peers(
            self.wire,
            tags,
            self._write,
            sharded=self.place.cluster and all(server.version[0] >= 7 for server in servers),
        )

    def _read_layout(self) -> int | None:
        """How the keys are laid out, if it is known. A server that is just starting is waited for, a bounded time."""
        found = ok(
            self.wire.send([Writer.plain("HGET", Tags(self.place.prefix).registry, "n", "layout")], safe=True)[0]
        )
        if found is not None and int(found) > LAYOUT:
            raise SchemaMismatch(
                f"{self.place} was written by a newer tampu (layout {int(found)}, this one knows {LAYOUT})",
                hint="upgrade tampu here too",
            )
        return None if found is None else int(found)

    def _note_layout(self, found: int | None) -> None:
        """What older code wrote is understood; it would not understand what we write."""
        if found != LAYOUT:
            verb = "HSETNX" if found is None else "HSET"
            ok(
                self.wire.send(
                    [Writer.plain(verb, Tags(self.place.prefix).registry, "n", "layout", LAYOUT)], safe=True
                )[0]
            )

    def now(self) -> int:
        if self._clock is not None:
            return self._clock.now()
        self._check_usable()
        seconds, micros = ok(self.wire.send([ScriptCall(self.registry.tags.registry, ("TIME",))], safe=True)[0])
        return int(seconds) * SECOND + int(micros)

    # -- writing

    def run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        return run_joined(self._run, calls)

    def _run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        with self._lock:
            self._check_usable()
            context = RunContext(self.registry)
            replies: list[Any] = [None] * len(calls)
            self._carry_out(calls, list(_plan(context, calls)), replies, context)
        self._announce(context)
        return replies

    def change(self, calls: Sequence[port.PutDocument | port.DeleteDocument]) -> list[Any]:
        """Documents, all or none: they are in one slot, so one script can do it. Not the settings of queues."""
        with self._lock:
            self._check_usable()
            asking = documents.change(RunContext(self.registry), calls)
            try:
                asking.send(self.wire.send(next(asking)))
            except StopIteration as end:
                return list(end.value)
        raise AssertionError("it asks once")

    def _carry_out(
        self, calls: Sequence[port.Call], works: list[Work], replies: list[Any], context: RunContext
    ) -> None:
        """All operations take their turns together: one pipeline per turn."""
        waiting: list[tuple[Work, list[ScriptCall]]] = []
        for work in works:
            self._advance(work, None, waiting, replies, calls, context)
        rung = False
        while waiting:
            asks = [ask for _, some in waiting for ask in some]
            if any(ask.command[1] in _STORING for ask in asks):
                asks.append(self.company.notify())  # in the same pipeline, for it will most likely be needed
                rung = True
            answers = iter(self.wire.send(asks))
            now_waiting, waiting = waiting, []
            for work, some in now_waiting:
                self._advance(work, [next(answers) for _ in some], waiting, replies, calls, context)
        if not rung and (context.ready or self._soon(context.due)):
            self.wire.send([self.company.notify()])

    def _soon(self, due: int | None) -> bool:
        """By our own clock: it only decides about a wake-up."""
        if due is None:
            return False
        now = time.time_ns() // 1000 if self._clock is None else self._clock.now()
        return due < now + _SOON

    def _advance(
        self,
        work: Work,
        told: list[Any] | None,
        waiting: list[tuple[Work, list[ScriptCall]]],
        replies: list[Any],
        calls: Sequence[port.Call],
        context: RunContext,
    ) -> None:
        """Let an operation go on; what it asks next, or its answers, or the error that only it gets."""
        places, asking = work
        try:
            waiting.append((work, next(asking) if told is None else asking.send(told)))
        except StopIteration as end:
            for place, reply in zip(places, end.value if len(places) > 1 else [end.value], strict=True):
                replies[place] = reply
        except TampuError as error:
            for place in places:
                replies[place] = error
        except Exception as error:
            if told is None and len(places) > 1:  # nothing was sent yet: each alone, and only the broken one fails
                for place in places:
                    for _, alone in _plan(context, [calls[place]]):
                        self._advance(([place], alone), None, waiting, replies, calls, context)
                return
            failed = TampuError(
                f"{type(calls[places[0]]).__name__.lower()} failed: {error!r}", hint="this is a fault of tampu's"
            )
            failed.__cause__ = error
            for place in places:
                replies[place] = failed

    def _announce(self, context: RunContext) -> None:
        if self._listener is not None:
            if context.due is not None:
                self._listener.due(context.due)
            if context.ready:
                self._listener.ready(context.ready)
            if context.leases_expired:
                self._listener.leases_expired(context.leases_expired)

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable("this queue was closed", hint="open it again")
        if os.getpid() != self._pid:
            raise Unavailable("this store was opened before a fork", hint="open it in the child process")

    # -- reading

    def query(self, asking: Asking[R]) -> R:
        """Carry out something that only reads."""
        self._check_usable()
        try:
            asks = next(asking)
            while True:
                asks = asking.send(self.wire.send(asks, safe=True))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the generator's own return type

    def get(self, tenant: str, id: str) -> Message | None:
        return self.query(read.get(self.registry, tenant, id))

    def page(
        self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
    ) -> port.Page | None:
        return self.query(read.page(self.registry, tenant, queue, state, after, limit))

    def stats(self, tenant: str, queue: str | None) -> list[port.QueueStats]:
        return self.query(read.stats(self.registry, tenant, queue))

    def queues(self) -> list[tuple[str, str]]:
        return [(room.tenant, room.queue) for room in self.query(self.registry.all())]

    def journal(self, after: Position | None, limit: int, tenant: str | None) -> JournalPage:
        return self.query(journal.read(self.registry, after, limit, tenant))

    def document(self, kind: str, tenant: str, name: str) -> port.Document | None:
        return self.query(documents.get(self.registry, kind, tenant, name))

    def documents(self, kind: str, tenant: str) -> list[port.Document]:
        return self.query(documents.list_all(self.registry, kind, tenant))

    def all_documents(self) -> list[port.Document]:
        return self.query(documents.every(self.registry))

    def kept(
        self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
    ) -> SnapshotPage | None:
        return self.query(transfer.page(self.registry, tenant, queue, state, after, limit))

    def requests(self, tenant: str, after: tuple[Any, ...] | None, limit: int) -> RequestPage:
        return self.query(transfer.requests(self.registry, tenant, after, limit))

    def revision(self) -> int:
        return int(self.query(_one(self._write.plain("HGET", self.registry.tags.registry, "n", "revision"))) or 0)

    def next_due(self) -> int | None:
        return self.query(sweep.next_due(self.registry))

    def poll_status(self, queues: Sequence[tuple[str, str]]) -> port.PollStatus:
        return self.query(sweep.poll_status(self.registry, queues, self.company.token, self._clock))

    def check(self) -> list[tuple[str, str, str]]:
        self._check_usable()
        servers = [checks.look(self.wire, node) for node in self.wire.route.masters()]
        return checks.findings(servers) + self.query(checks.agreement(self.registry, self.now()))

    # -- company

    def listen(self, listener: port.Listener) -> None:
        self._listener = listener
        self.company.listen(listener.on_remote_change)

    def lead(self) -> bool:
        self._check_usable()
        return self.company.lead()

    def close(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        with self._lock:
            self._closed = True
        self.company.close()
        self.wire.close()


def _one(ask: ScriptCall) -> Asking[Any]:
    (reply,) = yield [ask]
    return ok(reply)


def _plan(context: RunContext, calls: Sequence[port.Call]) -> Iterator[Work]:
    """Operations for the calls. Plain batches of one queue are put together, and so are all settlements."""
    settles = [i for i, call in enumerate(calls) if isinstance(call, port.Settle)]
    if settles:
        yield settles, _unlisted(settle.settle(context, [calls[i] for i in settles]), settles)  # type: ignore[misc]  # all are
        if len(settles) == len(calls):
            return
    together: set[int] = set()
    for places in _simple(calls):
        together.update(places)
        yield places, _unlisted(publish.publish_simple(context, [calls[i] for i in places]), places)  # type: ignore[misc]  # all are
    if len(together) < len(calls):
        for kind, verb in _ALONE:
            for i, call in enumerate(calls):
                if type(call) is kind and i not in together:
                    yield [i], verb(context, call)


def _simple(calls: Sequence[port.Call]) -> Iterator[list[int]]:
    """Places of plain publishes that can be stored as one."""
    lines: dict[tuple[str, str], list[int]] = {}
    sizes: dict[tuple[str, str], int] = {}
    for i, call in enumerate(calls):
        if isinstance(call, port.Publish) and call.simple and not call.max_depth:
            name = (call.tenant, call.queue)
            size = sizes.get(name, 0) + len(call.items)
            if size > publish.MOST_TOGETHER and name in lines:
                yield lines.pop(name)
                size = len(call.items)
            sizes[name] = size
            lines.setdefault(name, []).append(i)
    yield from lines.values()


def _unlisted(asking: Asking[list[Any]], places: list[int]) -> Asking[Any]:
    """Of one call, its own answer instead of a list of one."""
    answers = yield from asking
    return answers if len(places) > 1 else answers[0]
