"""The Redis and Valkey engine: connects to the server, sends calls in pipelines, answers reads.

Each verb has its own Python file and its own Lua script.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from tampu.engines import port
from tampu.engines.merged_claims import run_joined
from tampu.engines.redis import checks, journal, read
from tampu.engines.redis.connection import scripts, urls
from tampu.engines.redis.connection.script_calls import Operation, ScriptCall, Writer, ok
from tampu.engines.redis.connection.wire import Wire
from tampu.engines.redis.peers import Peers
from tampu.engines.redis.queue_registry import QueueRegistry, RunContext
from tampu.engines.redis.tags import Tags
from tampu.engines.redis.verbs import admin, claim, documents, load, publish, settle, sweep, transfer, units
from tampu.engines.transfer import Import, RequestPage, SnapshotPage, StartJournal
from tampu.model.errors import SchemaMismatch, TampuError, Unavailable
from tampu.model.journal import JournalPage, Position
from tampu.model.message import Message, State
from tampu.model.times import SECOND, Clock

R = TypeVar("R")
Work = tuple[list[int], Operation[Any]]
"""Positions of calls in a run, and the operation that answers them: one reply, or a list if the calls were merged."""

# In the order the calls are sent. Claims come last, so they see messages published in the same run.
_SINGLE: tuple[tuple[type[Any], Callable[[RunContext, Any], Operation[Any]]], ...] = (
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
    (port.UndoReplay, lambda context, call: admin.steer(context, "undo_replay", call)),
    (port.Together, units.together),
    (port.Purge, admin.purge),
    (port.Remove, lambda context, call: admin.steer(context, "remove", call)),
    (port.Rerank, admin.rerank),
    (port.Regroup, admin.regroup),
    (port.Trim, sweep.trim),
    (port.Sweep, sweep.sweep),
    (port.Claim, claim.claim),
)
LAYOUT = 6
"""Version of the key layout, described in docs/reference/redis-layout.md."""
_STORING = frozenset(scripts.digest(name) for name in ("publish_simple", "publish", "load", "import_messages", "unit"))
_SOON = SECOND
"""Maintenance polls this often; only work that is due sooner needs a wake-up."""


class RedisEngine:
    """See `tampu.engines.port.Engine` for the contract."""

    capabilities = frozenset({"group_order", "load", "atomic:isolated"})
    schema = LAYOUT

    def __init__(self, url: str, *, clock: Clock | None = None, durability: str | None = None) -> None:
        self.url = urls.parse(url)
        if self.url.cluster:
            self.capabilities = self.capabilities - {"atomic:isolated"} | {"atomic:eventual"}
        self._clock = clock
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.Lock()
        self._listener: port.Listener | None = None
        self.wire = Wire(self.url)
        try:
            layout = self._read_layout()
            servers = [checks.read_server(self.wire, node) for node in self.wire.route.masters()]
            self.durability = checks.check_servers(servers, durability or self.url.durability)
            self._write_layout(layout)
        except BaseException:
            self.wire.close()
            raise
        tags = Tags(self.url.prefix)
        self._write = Writer(clock)
        self.registry = QueueRegistry(tags, self._write, sharded=self.url.cluster)
        try:
            self.query(self.registry.open_ids())
        except BaseException:
            self.wire.close()
            raise
        self.wire.on_lost = self.registry.forget
        self.peers = Peers(
            self.wire,
            tags,
            self._write,
            sharded=self.url.cluster and all(server.version[0] >= 7 for server in servers),
        )

    def _read_layout(self) -> int | None:
        """The stored layout version, or None. Waits a bounded time for a server that is still starting."""
        found = ok(self.wire.send([Writer.plain("HGET", Tags(self.url.prefix).registry, "n", "layout")], safe=True)[0])
        if found is not None and int(found) > LAYOUT:
            raise SchemaMismatch(
                f"{self.url} was written by a newer tampu (layout {int(found)}; this version reads up to {LAYOUT})",
                hint="upgrade tampu on this machine too",
            )
        return None if found is None else int(found)

    def _write_layout(self, found: int | None) -> None:
        """Raise the stored version: we read what older code wrote, but older code cannot read what we write."""
        if found != LAYOUT:
            verb = "HSETNX" if found is None else "HSET"
            ok(
                self.wire.send([Writer.plain(verb, Tags(self.url.prefix).registry, "n", "layout", LAYOUT)], safe=True)[
                    0
                ]
            )

    def now(self) -> int:
        if self._clock is not None:
            return self._clock.now()
        self._check_usable()
        seconds, micros = ok(self.wire.send([ScriptCall(self.registry.tags.registry, ("TIME",))], safe=True)[0])
        return int(seconds) * SECOND + int(micros)

    # -- writing

    def run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        return self._run(calls) if len(calls) == 1 else run_joined(self._run, calls)

    def _run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        with self._lock:
            self._check_usable()
            context = RunContext(self.registry)
            replies: list[Any] = [None] * len(calls)
            self._run_operations(calls, list(_plan(context, calls)), replies, context)
        self._announce(context)
        return replies

    def change(self, calls: Sequence[port.PutDocument | port.DeleteDocument]) -> list[Any]:
        """Change several documents, all or none, in one script: they share a slot. Not for settings of queues."""
        with self._lock:
            self._check_usable()
            operation = documents.change(RunContext(self.registry), calls)
            try:
                operation.send(self.wire.send(next(operation)))
            except StopIteration as end:
                return list(end.value)
        raise AssertionError("documents.change yields once")

    def _run_operations(
        self, calls: Sequence[port.Call], works: list[Work], replies: list[Any], context: RunContext
    ) -> None:
        """Advance all operations together: one pipeline per round."""
        waiting: list[tuple[Work, list[ScriptCall]]] = []
        for work in works:
            self._advance(work, None, waiting, replies, calls, context)
        notified = False
        while waiting:
            script_calls = [call for _, some in waiting for call in some]
            if any(call.command[1] in _STORING for call in script_calls):
                script_calls.append(self.peers.wake_others)  # in the same pipeline: most likely it is needed
                notified = True
            answers = iter(self.wire.send(script_calls))
            round_, waiting = waiting, []
            for work, some in round_:
                self._advance(work, [next(answers) for _ in some], waiting, replies, calls, context)
        if not notified and (context.ready or self._soon(context.due)):
            self.wire.send([self.peers.wake_others])

    def _soon(self, due: int | None) -> bool:
        """Uses the local clock: it only decides whether to send a wake-up."""
        if due is None:
            return False
        now = time.time_ns() // 1000 if self._clock is None else self._clock.now()
        return due < now + _SOON

    def _advance(
        self,
        work: Work,
        answers: list[Any] | None,
        waiting: list[tuple[Work, list[ScriptCall]]],
        replies: list[Any],
        calls: Sequence[port.Call],
        context: RunContext,
    ) -> None:
        """Advance one operation. It waits for its next script calls, or ends with its replies or its own error."""
        positions, operation = work
        try:
            waiting.append((work, next(operation) if answers is None else operation.send(answers)))
        except StopIteration as end:
            for position, reply in zip(positions, end.value if len(positions) > 1 else [end.value], strict=True):
                replies[position] = reply
        except TampuError as error:
            for position in positions:
                replies[position] = error
        except Exception as error:
            if answers is None and len(positions) > 1:  # nothing was sent: run each alone, so only the bad one fails
                for position in positions:
                    for _, single in _plan(context, [calls[position]]):
                        self._advance(([position], single), None, waiting, replies, calls, context)
                return
            failed = TampuError(
                f"{type(calls[positions[0]]).__name__.lower()} failed: {error!r}",
                hint="this is a bug in tampu; please report it",
            )
            failed.__cause__ = error
            for position in positions:
                replies[position] = failed

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
            raise Unavailable("this store was closed", hint="open it again")
        if os.getpid() != self._pid:
            raise Unavailable("this store was opened before a fork", hint="open it in the child process")

    # -- reading

    def query(self, operation: Operation[R]) -> R:
        """Run an operation that only reads."""
        self._check_usable()
        try:
            calls = next(operation)
            while True:
                calls = operation.send(self.wire.send(calls, safe=True))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the generator's own return type

    def get(self, tenant: str, id: str, *, expired: bool = False) -> Message | None:
        return self.query(read.get(self.registry, tenant, id, expired=expired))

    def page(
        self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
    ) -> port.Page | None:
        return self.query(read.page(self.registry, tenant, queue, state, after, limit))

    def correlated(self, tenant: str, correlation_id: str, limit: int) -> list[Message]:
        return self.query(read.correlated(self.registry, tenant, correlation_id, limit))

    def stats(self, tenant: str, queue: str | None) -> list[port.QueueStats]:
        return self.query(read.stats(self.registry, tenant, queue))

    def is_full(self) -> bool:
        return False  # only Redis knows

    def queues(self) -> list[tuple[str, str]]:
        return [(entry.tenant, entry.queue) for entry in self.query(self.registry.all())]

    def journal(self, after: Position | None, limit: int, tenant: str | None) -> JournalPage:
        return self.query(journal.read(self.registry, after, limit, tenant))

    def document(self, kind: str, tenant: str, name: str) -> port.Document | None:
        return self.query(documents.get(self.registry, kind, tenant, name))

    def documents(
        self, kind: str, tenant: str, prefix: str = "", after: str = "", limit: int | None = None
    ) -> list[port.Document]:
        return self.query(documents.of_kind(self.registry, kind, tenant, prefix, after, limit))

    def count_documents(self, kind: str, tenant: str) -> int:
        return self.query(documents.count(self.registry, kind, tenant))

    def all_documents(self) -> list[port.Document]:
        return self.query(documents.list_everything(self.registry))

    def export_messages(
        self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
    ) -> SnapshotPage | None:
        return self.query(transfer.page(self.registry, tenant, queue, state, after, limit))

    def export_idempotency_keys(self, tenant: str, after: tuple[Any, ...] | None, limit: int) -> RequestPage:
        return self.query(transfer.requests(self.registry, tenant, after, limit))

    def revision(self) -> int:
        revision = self._write.plain("HGET", self.registry.tags.registry, "n", "revision")
        return int(self.query(_single_call(revision)) or 0)

    def next_due(self) -> int | None:
        return self.query(sweep.next_due(self.registry))

    def poll_status(self, queues: Sequence[tuple[str, str]]) -> port.PollStatus:
        return self.query(sweep.poll_status(self.registry, queues, self.peers.token, self._clock))

    def check(self) -> list[tuple[str, str, str]]:
        self._check_usable()
        servers = [checks.read_server(self.wire, node) for node in self.wire.route.masters()]
        return checks.findings(servers) + self.query(checks.check_indexes(self.registry, self.now()))

    # -- other processes

    def listen(self, listener: port.Listener) -> None:
        self._listener = listener
        self.peers.listen(listener.on_remote_change)

    def wake_others(self) -> None:
        self.wire.send([self.peers.wake_others])

    def lead(self) -> bool:
        self._check_usable()
        return self.peers.lead()

    def close(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        with self._lock:
            self._closed = True
        self.peers.close()
        self.wire.close()


def _single_call(call: ScriptCall) -> Operation[Any]:
    (reply,) = yield [call]
    return ok(reply)


def _plan(context: RunContext, calls: Sequence[port.Call]) -> Iterator[Work]:
    """The operations for these calls. Simple publishes to one queue are merged, and so are all settles."""
    settles = [i for i, call in enumerate(calls) if isinstance(call, port.Settle)]
    if settles:
        yield settles, _unwrap_single(settle.settle(context, [calls[i] for i in settles]), settles)  # type: ignore[misc]  # all are
        if len(settles) == len(calls):
            return
    merged: set[int] = set()
    for positions in _simple(calls):
        merged.update(positions)
        yield positions, _unwrap_single(publish.publish_simple(context, [calls[i] for i in positions]), positions)  # type: ignore[misc]  # all are
    if len(merged) < len(calls):
        for kind, verb in _SINGLE:
            for i, call in enumerate(calls):
                if type(call) is kind and i not in merged:
                    yield [i], verb(context, call)


def _simple(calls: Sequence[port.Call]) -> Iterator[list[int]]:
    """Positions of simple publishes that one script can store."""
    batches: dict[tuple[str, str], list[int]] = {}
    sizes: dict[tuple[str, str], int] = {}
    for i, call in enumerate(calls):
        if isinstance(call, port.Publish) and call.simple and not call.max_depth:
            name = (call.tenant, call.queue)
            size = sizes.get(name, 0) + len(call.items)
            if size > publish.MAX_MERGED and name in batches:
                yield batches.pop(name)
                size = len(call.items)
            sizes[name] = size
            batches.setdefault(name, []).append(i)
    yield from batches.values()


def _unwrap_single(operation: Operation[list[Any]], positions: list[int]) -> Operation[Any]:
    """For one call, its reply instead of a list of one reply."""
    answers = yield from operation
    return answers if len(positions) > 1 else answers[0]
