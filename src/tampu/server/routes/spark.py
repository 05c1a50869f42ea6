"""Spark over HTTP: snapshots, the journal and deliveries as Arrow streams, jobs that publish, and what they remember.

Claims, settlements and extensions of a drain go the way of every worker.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Query, Response

from tampu.broker import validate
from tampu.engines import port
from tampu.model.errors import Forbidden, InvalidMessage, NotFound
from tampu.model.journal import Position
from tampu.server.auth.grants import Who
from tampu.server.events import positions
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest
from tampu.server.routes.common import Asks, Caller, QueueName, answer
from tampu.server.spark.spark_store import Planned, SparkStore
from tampu.stores import wire
from tampu.wire import bodies

R = TypeVar("R")
router = APIRouter(prefix="/v1/spark", tags=["spark"])
_MOST_NAMES = 1000
_THREADS = ThreadPoolExecutor(4, thread_name_prefix="tampu-spark")
"""A plan of millions takes its time: it must not hold up what others ask of the loop's own threads."""
Micros = Annotated[int | None, Query(ge=0, lt=1 << 62, description="Microseconds since 1970")]
Everyone = Annotated[bool, Query(description="Of all tenants; for keys that may act in any")]


def _arrow(body: Any = None, more: tuple[int, ...] = ()) -> dict[str, Any]:
    told = doc(None, body, more=more, text="An Arrow IPC stream; its last batch, which is empty, tells the rows")
    told["responses"][200]["content"] = {wire.ARROW: {"schema": {"type": "string", "format": "binary"}}}
    return told


async def _desk(request: HttpRequest) -> SparkStore:
    """First of all in every route: it tells who runs a server without Arrow what is missing."""
    return await asyncio.to_thread(request.node.desk)


async def _do(work: Callable[..., R], *arguments: Any) -> R:
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work, *arguments)


async def _tenant(request: HttpRequest, who: Who, everyone: bool) -> str | None:
    """Whose rows are read; None for all tenants'."""
    if everyone and not await request.node.of_all_tenants(who):
        raise Forbidden("this key is of one tenant", field="tenant", hint="name a tenant, or use a key of all tenants")
    return None if everyone else who.tenant


# -- documents and changes


@router.post("/documents", operation_id="spark_documents", **doc(wire.SparkDocuments, wire.SparkLookup))
async def documents(request: Asks, who: Caller) -> Response:
    """What Spark programs keep: who owns a consumer, what was delivered, how far a job is, the settings of a queue."""
    desk = await _desk(request)
    from tampu.server.spark import permissions

    asked: wire.SparkLookup = await request.read(wire.LOOKUP)
    if (asked.name is None) == (asked.prefix is None):
        raise InvalidMessage("give a name or a prefix", field="name")
    name = asked.prefix if asked.name is None else asked.name
    everyone = await request.node.of_all_tenants(who)
    tenant = permissions.check_document(who, asked.kind, name or "", write=False, everyone=everyone)
    store = desk.store
    if asked.name is not None:
        one = await _do(store.document, asked.kind, tenant, asked.name)
        found = [] if one is None else [one]
    else:
        there = await _do(store.documents, asked.kind, tenant)
        found = [document for document in there if document.name.startswith(asked.prefix or "")]
    return answer(request, wire.SparkDocuments([wire.SparkDocument(d.name, d.version, d.value) for d in found]))


@router.post(
    "/changes", operation_id="spark_changes", **doc(wire.SparkChanged, wire.SparkChanges, more=(404, 409, 422, 507))
)
async def changes(request: Asks, who: Caller) -> Response:
    """Store messages of a job and documents, in their order; in one commit where the store can."""
    desk = await _desk(request)
    from tampu.server.spark import load, permissions

    asked: wire.SparkChanges = await request.read(wire.CHANGES)
    everyone = await request.node.of_all_tenants(who)
    owners: list[str] = []
    for change in asked.changes:
        if isinstance(change, wire.SparkPut | wire.SparkDelete):
            owners.append(permissions.check_document(who, change.kind, change.name, write=True, everyone=everyone))
        else:
            owners.append(who.tenant)
            who.need("publish", validate.name(change.queue, "queue"))
            request.subject.add((change.queue,))
    count = load.count(asked.changes)
    if count > request.node.settings.max_batch:
        raise InvalidMessage(f"{count} messages in one request", field="changes", hint="send several")
    await request.spend(who, count)
    replies = await _do(_change, owners, desk, asked)
    for change, new in zip(asked.changes, replies, strict=True):
        if new and isinstance(change, wire.SparkLoad | wire.SparkPublish):
            request.node.metrics.publish(who.tenant, change.queue, new)
    request.node.tail.stir()
    return answer(request, wire.SparkChanged(replies))


def _change(owners: Sequence[str], desk: SparkStore, asked: wire.SparkChanges) -> list[int]:
    from tampu.broker import settings
    from tampu.server.spark import load
    from tampu.spark.write.publish import KEPT_US, Calls, stored

    remember_us = 0 if desk.store.joint else KEPT_US

    @functools.cache  # as they are this moment: a job of many rows is worth a look
    def settings_of(tenant: str, queue: str) -> settings.Settings:
        return settings.read(desk.store.document, tenant, queue)

    calls: list[port.Call] = []
    counted: list[tuple[int, int]] = []
    """For each change, which of the calls its reply is of."""
    for change, tenant in zip(asked.changes, owners, strict=True):
        if isinstance(change, wire.SparkPut):
            put = port.PutDocument(change.kind, tenant, change.name, change.value, change.version)
            made = Calls([put])
        elif isinstance(change, wire.SparkDelete):
            made = Calls([port.DeleteDocument(change.kind, tenant, change.name)])
        elif isinstance(change, wire.SparkLoad):
            made = load.load(tenant, change, functools.partial(settings_of, tenant), remember_us)
        else:
            made = load.publish(tenant, change, functools.partial(settings_of, tenant), remember_us)
        counted.append((len(calls), len(calls) + len(made.rows)))
        calls += (*made.rows, *made.copies)
    replies = desk.change(calls, again=asked.again)
    return [sum(int(stored(reply)) for reply in replies[first:last]) for first, last in counted]


@router.get("/queues/{queue}", operation_id="spark_queue", **doc(wire.SparkQueue))
async def queue(queue: QueueName, request: Asks, who: Caller) -> Response:
    """How many messages of a queue are in each state."""
    desk = await _desk(request)
    from tampu.server.spark import permissions

    permissions.check_known(who, queue)
    counts = await _do(desk.store.counts, who.tenant, queue)
    return answer(request, wire.SparkQueue(dict(counts)))


# -- the journal


@router.get("/place", operation_id="spark_place", **doc(wire.SparkPlace))
async def place(request: Asks, who: Caller, since: Micros = None, until: Micros = None) -> Response:
    """Where the journal begins and ends; also the position before what is since a time, or of what was until it."""
    desk = await _desk(request)
    if not any(who.somewhere(permission) for permission in ("view", "publish", "consume")):
        who.need_somewhere("view")
    everyone = await request.node.of_all_tenants(who)

    def seen(position: Position) -> Position:
        return position if everyone else positions.seen_by(who, position)

    def look() -> wire.SparkPlace:
        earliest, latest = desk.store.bounds() if who.somewhere("view") else ({}, {})
        found = None
        if who.somewhere("view") and (since is not None or until is not None):
            found = seen(desk.store.at_time(since) if since is not None else desk.store.until_time(until or 0))
        return wire.SparkPlace(seen(earliest), seen(latest), desk.store.now(), found)

    return answer(request, await _do(look))


@router.get("/journal", operation_id="spark_journal", **_arrow(more=(404,)))
async def journal(
    request: Asks,
    who: Caller,
    partition: Annotated[str, Query(max_length=300)],
    after: Annotated[int, Query(ge=0, lt=1 << 62)],
    upto: Annotated[int, Query(ge=0, lt=1 << 62)],
    queue: Annotated[list[str], Query(max_length=_MOST_NAMES, description="Only of these queues")] = [],  # noqa: B006 - read only
    everyone: Everyone = False,
) -> Response:
    """Transitions of one partition, after one offset and up to another."""
    desk = await _desk(request)
    from tampu.server.spark import arrow_stream, permissions
    from tampu.stores import columns

    tenant = await _tenant(request, who, everyone)
    queues = permissions.viewed(who, tuple(queue), await _do(desk.queues, tenant))
    known = positions.is_seen_by(who, partition) or await request.node.of_all_tenants(who)
    if not known or partition not in (await _do(desk.store.bounds))[1]:
        raise NotFound(f"the journal has no partition {partition}", field="partition")
    chosen = None if queues == () else queues or ()
    return await arrow_stream.answer(
        request, desk.places, lambda: desk.store.journal(partition, after, upto, tenant, chosen), columns.JOURNAL
    )


# -- messages


@router.post("/plan", operation_id="spark_plan", **doc(wire.SparkPlanned, wire.SparkPlan))
async def plan(request: Asks, who: Caller) -> Response:
    """Fix what a snapshot is of; its pieces can be read by other processes, on any node."""
    desk = await _desk(request)
    from tampu.server.spark import permissions
    from tampu.stores import columns
    from tampu.stores.port import MessageQuery

    asked: wire.SparkPlan = await request.read(wire.PLAN)
    query = asked.query
    tenant = await _tenant(request, who, query.everyone)
    columns.chosen(columns.MESSAGES, query.columns)
    queues = permissions.viewed(who, query.queues, await _do(desk.queues, tenant))
    if queues is None:
        return answer(request, wire.SparkPlanned({}, []))
    given = msgspec.structs.asdict(query) | {"queues": queues}
    del given["everyone"]
    planned = await _do(desk.store.plan, MessageQuery(tenant=tenant, **given), asked.pieces)
    pieces = [desk.sign(Planned(tenant, queues, query.columns, piece)) for piece in planned.pieces]
    return answer(request, wire.SparkPlanned(planned.position, pieces))


@router.post("/messages", operation_id="spark_messages", **_arrow(wire.SparkPiece, more=(404,)))
async def messages(request: Asks, who: Caller) -> Response:
    """The messages of one piece of a plan."""
    desk = await _desk(request)
    from tampu.server.spark import arrow_stream
    from tampu.stores import columns

    asked: wire.SparkPiece = await request.read(wire.PIECE)
    piece = desk.read(asked.piece)
    if piece.tenant != await _tenant(request, who, piece.tenant is None):
        raise NotFound("no such piece", field="piece")
    if piece.queues:
        who.need("view", *piece.queues)
    else:
        who.need_everywhere("view")
    schema = columns.chosen(columns.MESSAGES, piece.columns)
    return await arrow_stream.answer(request, desk.places, lambda: desk.store.messages(piece.piece), schema)


@router.post("/deliveries", operation_id="spark_deliveries", **_arrow(bodies.Ids))
async def deliveries(request: Asks, who: Caller) -> Response:
    """Messages as they are now, in the order asked for; of queues that the caller may consume or view."""
    desk = await _desk(request)
    import pyarrow as pa

    from tampu.server.spark import arrow_stream
    from tampu.stores import columns

    asked: bodies.Ids = await request.read(bodies.IDS)
    request.check_batch(asked.ids, "ids")
    ids = [validate.id_text(id) for id in asked.ids]
    if not who.somewhere("consume"):
        who.need_somewhere("view")

    def found() -> Any:
        table = desk.store.by_ids(who.tenant, ids)
        may = [who.may("consume", name) or who.may("view", name) for name in table.column("queue").to_pylist()]
        yield from table.filter(pa.array(may, pa.bool_())).combine_chunks().to_batches()

    return await arrow_stream.answer(request, desk.places, found, columns.MESSAGES)
