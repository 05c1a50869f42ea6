"""A tampu server as a store for Spark. Driver and executors each connect to it; rows come as Arrow streams.

Changes that belong together are one request. The key is in ``TAMPU_TOKEN`` on the driver and on every executor, or in
the url as a password (``http://:KEY@host``); in that case, take the url from the environment (``env:NAME``).
"""

from __future__ import annotations

import copy
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, Self

import msgspec
import pyarrow as pa

from tampu.broker import journal_readers
from tampu.client import verbs
from tampu.client.failures import Broken
from tampu.client.remote import RemoteCore
from tampu.client.request import Request, quoted, reader
from tampu.engines import port
from tampu.engines.port import Call, Document
from tampu.model.decoders import from_msgpack
from tampu.model.errors import InvalidConfig, RateLimited, Unavailable
from tampu.model.journal import Position
from tampu.model.message import State
from tampu.stores import columns, wire
from tampu.stores.port import ArrowStore, MessageQuery, SnapshotPlan
from tampu.wire import bodies
from tampu.wire.problems import from_answer

_OWN = "default"
"""The server takes it as the tenant of the key."""
_LONG_SECONDS = 600.0
"""Planning a snapshot of millions of messages takes long."""
_PATIENCE = 60.0
"""Seconds to wait when the key's rate limit is reached."""
_TRIES = 5
_SCOPED = frozenset({"spark-job", "spark-stream", "spark-stage", "spark-staged"})
"""Kinds of documents that belong to jobs; see `ArrowStore.within`."""
_read_changed = reader(wire.SparkChanged)
_read_documents = reader(wire.SparkDocuments)
_read_queue = reader(wire.SparkQueue)
_read_place = reader(wire.SparkPlace)
_read_planned = reader(wire.SparkPlanned)
_read_piece = from_msgpack(tuple[str | None, bytes]).decode


class HttpStore(ArrowStore):
    joint = False
    remote = True

    def __init__(self, url: str, token: str | None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.username and parts.password is None:
            raise InvalidConfig("the url has a user but no key", field="url", hint="http://:KEY@host:port")
        if parts.password is not None:
            token = urllib.parse.unquote(parts.password)
            url = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self._url = url
        self._token = token
        self._scope = wire.ANY
        self._cores: dict[str, RemoteCore] = {}
        self._core(_OWN)  # so that an invalid url fails at once

    def __exit__(self, *exc: object) -> None:
        for core in self._cores.values():
            core.close()

    def _core(self, tenant: str) -> RemoteCore:
        tenant = _OWN if tenant == journal_readers.TENANT else tenant  # the server finds the store's own documents
        if tenant not in self._cores:
            self._cores[tenant] = RemoteCore(self._url, self._token, tenant)
        return self._cores[tenant]

    def _do(self, tenant: str, request: Request) -> Any:
        """Send a request; waits if the rate limit of the key is reached."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                return self._core(tenant).do(request)
            except RateLimited as error:
                if error.retry_after is None or time.monotonic() + error.retry_after > until:
                    raise
                time.sleep(error.retry_after)

    # -- calls

    def run(self, calls: Sequence[Call]) -> list[Any]:
        replies: list[Any] = []
        changes: list[Call] = []
        for call in calls:
            if isinstance(call, port.PutDocument | port.DeleteDocument | port.Load | port.Publish):
                changes.append(call)
            else:
                replies += self._change(changes)
                changes = []
                replies.append(self._do(_tenant(call), _ask(call)))
        return replies + self._change(changes)

    def together(self, calls: Sequence[Call]) -> list[Any]:
        """One request, which the server runs in one commit where its engine can."""
        return self.run(calls)

    def transaction(self) -> NoReturn:
        raise InvalidConfig(
            "a server does not support transactions", field="url", hint="leave out atomic, or use the url of the store"
        )

    def _change(self, calls: Sequence[Call]) -> list[Any]:
        if not calls:
            return []
        changes = [self._to_change(call) for call in calls]
        request = Request(
            "POST",
            "/v1/spark/changes",
            _read_changed,
            wire.SparkChanges(changes),
            again=wire.SparkChanges(changes, again=True),
            wait=_LONG_SECONDS,
        )
        changed: wire.SparkChanged = self._do(_tenant(calls[0]), request)
        return list(changed.replies)

    def _to_change(self, call: Call) -> wire.SparkChange:
        if isinstance(call, port.PutDocument):
            return wire.SparkPut(call.kind, self._named(call.kind, call.name), call.value, call.version)
        if isinstance(call, port.DeleteDocument):
            return wire.SparkDelete(call.kind, self._named(call.kind, call.name))
        if isinstance(call, port.Load):
            numbers, starts = list(call.numbers), list(call.starts)
            return wire.SparkLoad(call.queue, call.id_prefix, numbers, bytes(call.bodies), starts)
        assert isinstance(call, port.Publish)
        return wire.SparkPublish(
            call.queue,
            [
                wire.SparkItem(item.id or "", item.packed, item.max_attempts, item.run_us, item.delay_us, item.ttl_us)
                for item in call.items
            ],
        )

    # -- documents

    def within(self, queue: str | None) -> Self:
        other = copy.copy(self)
        other._scope = queue or wire.ANY
        return other

    def _named(self, kind: str, name: str) -> str:
        return f"{self._scope}/{name}" if kind in _SCOPED else name

    def document(self, kind: str, tenant: str, name: str) -> Document | None:
        found = self._documents(tenant, wire.SparkLookup(kind, name=self._named(kind, name))).documents
        return Document(kind, tenant, name, found[0].version, found[0].value) if found else None

    def documents(self, kind: str, tenant: str, prefix: str = "") -> list[Document]:
        scope = self._named(kind, "")
        found: list[wire.SparkDocument] = []
        cursor: str | None = ""
        while cursor is not None:
            page = self._documents(tenant, wire.SparkLookup(kind, prefix=scope + prefix, after=cursor))
            found, cursor = found + page.documents, page.cursor
        return [Document(kind, tenant, one.name.removeprefix(scope), one.version, one.value) for one in found]

    def _documents(self, tenant: str, lookup: wire.SparkLookup) -> wire.SparkDocuments:
        reply: wire.SparkDocuments = self._do(tenant, Request("POST", "/v1/spark/documents", _read_documents, lookup))
        return reply

    def counts(self, tenant: str, queue: str) -> Mapping[State, int]:
        reply: wire.SparkQueue = self._do(tenant, Request("GET", f"/v1/spark/queues/{quoted(queue)}", _read_queue))
        return reply.counts

    # -- the journal

    def _place(self, **at: int) -> wire.SparkPlace:
        request = Request("GET", "/v1/spark/place", _read_place, query=list(at.items()), wait=_LONG_SECONDS)
        reply: wire.SparkPlace = self._do(_OWN, request)
        return reply

    def now(self) -> int:
        return self._place().now_us

    def bounds(self) -> tuple[Position, Position]:
        reply = self._place()
        return reply.earliest, reply.latest

    def at_time(self, at_us: int) -> Position:
        return self._place(since=max(0, at_us)).found or {}

    def until_time(self, at_us: int) -> Position:
        return self._place(until=max(0, at_us)).found or {}

    def journal(
        self, partition: str, after: int, upto: int, tenant: str | None, queues: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """After a broken connection, continues from the last offset."""
        failed = 0
        while after < upto:
            query: list[tuple[str, Any]] = [("partition", partition), ("after", after), ("upto", upto)]
            query += [("queue", queue) for queue in queues or ()]
            query.append(("everyone", "true" if tenant is None else None))
            request = Request("GET", "/v1/spark/journal", bytes, query=query, wait=_LONG_SECONDS)
            try:
                for batch in self._batches(tenant, request):
                    yield batch
                    after, failed = batch.column("offset")[-1].as_py(), 0
                return
            except Unavailable:
                failed += 1
                if failed == _TRIES:
                    raise

    # -- messages

    def plan(self, query: MessageQuery, pieces: int) -> SnapshotPlan:
        given = msgspec.structs.asdict(query)
        tenant = given.pop("tenant")
        body = wire.SparkPlan(wire.SparkQuery(everyone=tenant is None, **given), pieces)
        request = Request("POST", "/v1/spark/plan", _read_planned, body, wait=_LONG_SECONDS)
        reply: wire.SparkPlanned = self._do(tenant or _OWN, request)
        sender = msgspec.msgpack.encode
        return SnapshotPlan(reply.position, [sender((tenant, piece)) for piece in reply.pieces])

    def messages(self, piece: bytes) -> Iterator[pa.RecordBatch]:
        tenant, signed = _read_piece(piece)
        request = Request("POST", "/v1/spark/messages", bytes, wire.SparkPiece(signed), wait=_LONG_SECONDS)
        return self._batches(tenant, request)

    def by_ids(self, tenant: str, ids: Sequence[str]) -> pa.Table:
        request = Request("POST", "/v1/spark/deliveries", bytes, bodies.Ids(list(ids)), wait=_LONG_SECONDS)
        return pa.Table.from_batches(list(self._batches(tenant, request)), columns.MESSAGES)

    def _batches(self, tenant: str | None, request: Request) -> Iterator[pa.RecordBatch]:
        rows = 0
        try:
            with self._core(tenant or _OWN).open(request) as stream, pa.ipc.open_stream(stream) as batches:
                while True:
                    batch, reply = batches.read_next_batch_with_custom_metadata()
                    if reply is None:
                        rows += len(batch)
                        yield batch
                    elif wire.PROBLEM in reply:
                        raise from_answer(0, reply[wire.PROBLEM])
                    elif int(reply[wire.END]) == rows:
                        return
                    else:
                        break
        except (Broken, OSError, pa.ArrowInvalid, StopIteration) as error:
            raise _interrupted(self._url, error) from None
        raise _interrupted(self._url, "rows are missing")


def _interrupted(url: str, why: object) -> Unavailable:
    return Unavailable(f"reading from {url} was interrupted: {why}", hint="Spark retries the task")


def _tenant(call: Any) -> str:
    tenant: str = call.tenant
    return tenant


def _ask(call: Call) -> Request:
    """The request for a call that any worker makes."""
    if isinstance(call, port.Claim):
        return verbs.claim_request(
            [want.queue for want in call.wants], call.limit, call.wants[0].lease_us, 0, call.worker
        )
    if isinstance(call, port.Settle):
        return verbs.settle_request(call.items)
    if isinstance(call, port.Extend):
        return verbs.extend_request([(receipt, lease_us) for _, receipt, lease_us in call.items])
    raise InvalidConfig(
        f"Spark cannot {type(call).__name__.lower()} through a server", hint="use the url of the store itself"
    )
