"""Spark over HTTP: snapshots, the journal and deliveries as Arrow streams; publishing jobs and their documents.

Claim, settle and extend use the same routes as any worker.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from tampu.broker import validate
from tampu.engines import port
from tampu.model.errors import Forbidden, InvalidMessage, NotFound
from tampu.model.journal import Position
from tampu.server.auth.grants import Caller
from tampu.server.events import positions
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest
from tampu.server.routes.common import CurrentCaller, CurrentRequest, QueueName, answer
from tampu.server.spark.spark_store import Planned, SparkStore
from tampu.stores import wire
from tampu.wire import bodies

R = TypeVar("R")
router = APIRouter(prefix="/v1/spark", tags=["spark"])
_MOST_NAMES = 1000
_THREADS = ThreadPoolExecutor(4, thread_name_prefix="tampu-spark")
"""Planning millions of rows takes long, and must not block the threads of other requests."""
Micros = Annotated[int | None, Query(ge=0, lt=1 << 62, description="Microseconds since 1970")]
Everyone = Annotated[bool, Query(description="All tenants; needs a key of all tenants")]


def _arrow(body: Any = None, more: tuple[int, ...] = ()) -> dict[str, Any]:
    route = doc(None, body, more=more, text="An Arrow IPC stream; its last batch is empty and has the number of rows")
    route["responses"][200]["content"] = {wire.ARROW: {"schema": {"type": "string", "format": "binary"}}}
    return route


async def _spark_store(request: CurrentRequest, _caller: CurrentCaller) -> SparkStore:
    """Raises a clear error if the server runs without Arrow."""
    return await asyncio.to_thread(request.server.spark_store)


CurrentStore = Annotated[SparkStore, Depends(_spark_store)]


async def _do(request: HttpRequest, work: Callable[..., R], *arguments: Any) -> R:
    with request.server.budget.listings.hold():
        return await asyncio.get_running_loop().run_in_executor(_THREADS, work, *arguments)


async def _tenant(request: HttpRequest, caller: Caller, everyone: bool) -> str | None:
    """The tenant whose rows are read; None for all tenants."""
    if everyone and not await request.server.of_all_tenants(caller):
        raise Forbidden(
            "this key belongs to one tenant", field="tenant", hint="name a tenant, or use a key of all tenants"
        )
    return None if everyone else caller.tenant


# -- documents and changes


@router.post("/documents", operation_id="spark_documents", **doc(wire.SparkDocuments, wire.SparkLookup))
async def documents(request: CurrentRequest, caller: CurrentCaller, spark_store: CurrentStore) -> Response:
    """Documents of Spark programs: owners of consumers, deliveries, progress of jobs, queue settings."""
    from tampu.server.spark import permissions

    body: wire.SparkLookup = await request.read(wire.LOOKUP)
    if (body.name is None) == (body.prefix is None):
        raise InvalidMessage("give either a name or a prefix", field="name")
    if body.prefix is not None:
        permissions.check_prefix(body.kind, body.prefix)
    name = body.prefix if body.name is None else body.name
    everyone = await request.server.of_all_tenants(caller)
    tenant = permissions.check_document(caller, body.kind, name or "", write=False, everyone=everyone)
    if body.name is not None:
        one = await _do(request, spark_store.store.document, body.kind, tenant, body.name)
        found, cursor = [] if one is None else [one], None
    else:
        await request.spend(caller, 1)
        step = 1 if body.kind in permissions.LARGE else 16
        found, cursor = await _do(request, spark_store.page, body.kind, tenant, body.prefix, body.after, step)
    return answer(request, wire.SparkDocuments([wire.SparkDocument(d.name, d.version, d.value) for d in found], cursor))


@router.post(
    "/changes", operation_id="spark_changes", **doc(wire.SparkChanged, wire.SparkChanges, more=(404, 409, 422, 507))
)
async def changes(request: CurrentRequest, caller: CurrentCaller, spark_store: CurrentStore) -> Response:
    """Store messages of a job, and documents, in order; in one commit if the store can."""
    from tampu.server.spark import load, permissions

    body: wire.SparkChanges = await request.read_large(wire.CHANGES)
    everyone = await request.server.of_all_tenants(caller)
    owners: list[str] = []
    for change in body.changes:
        if isinstance(change, wire.SparkPut | wire.SparkDelete):
            permissions.check_size(change)
            owners.append(permissions.check_document(caller, change.kind, change.name, write=True, everyone=everyone))
        else:
            owners.append(caller.tenant)
            caller.need("publish", validate.name(change.queue, "queue"))
            request.subject.add((change.queue,))
    count = load.count(body.changes)
    if count > request.server.settings.max_batch:
        most = request.server.settings.max_batch
        raise InvalidMessage(
            f"{count} messages in one request; the limit is {most}", field="changes", hint="send several requests"
        )
    await request.spend(caller, count + sum(isinstance(c, wire.SparkPut | wire.SparkDelete) for c in body.changes))
    replies = await _do(request, _change, owners, spark_store, body)
    for change, new in zip(body.changes, replies, strict=True):
        if new and isinstance(change, wire.SparkLoad | wire.SparkPublish):
            request.server.metrics.publish(caller.tenant, change.queue, new)
    request.server.tail.wake()
    return answer(request, wire.SparkChanged(replies))


def _change(owners: Sequence[str], spark_store: SparkStore, body: wire.SparkChanges) -> list[int]:
    from tampu.broker import settings
    from tampu.server.spark import load
    from tampu.spark.write.publish import KEPT_US, Calls, stored

    remember_us = 0 if spark_store.store.joint else KEPT_US

    @functools.cache  # read fresh for each request: a job has many rows
    def settings_of(tenant: str, queue: str) -> settings.Settings:
        return settings.read_with_policies(spark_store.store, tenant, queue)

    calls: list[port.Call] = []
    counted: list[tuple[int, int]] = []
    """For each change, the range of calls that store its rows."""
    for change, tenant in zip(body.changes, owners, strict=True):
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
    spark_store.check_room([call for call in calls if isinstance(call, port.PutDocument)])
    replies = spark_store.change(calls, again=body.again)
    return [sum(int(stored(reply)) for reply in replies[first:last]) for first, last in counted]


@router.get("/queues/{queue}", operation_id="spark_queue", **doc(wire.SparkQueue))
async def queue(
    queue: QueueName, request: CurrentRequest, caller: CurrentCaller, spark_store: CurrentStore
) -> Response:
    """The number of messages of a queue by state."""
    from tampu.server.spark import permissions

    permissions.check_known(caller, queue)
    counts = await _do(request, spark_store.store.counts, caller.tenant, queue)
    return answer(request, wire.SparkQueue(dict(counts)))


# -- the journal


@router.get("/place", operation_id="spark_place", **doc(wire.SparkPlace))
async def place(
    request: CurrentRequest,
    caller: CurrentCaller,
    spark_store: CurrentStore,
    since: Micros = None,
    until: Micros = None,
) -> Response:
    """The first and last position of the journal; with ``since`` or ``until``, also the position at that time."""
    caller.need_somewhere("view", "publish", "consume")
    everyone = await request.server.of_all_tenants(caller)

    def seen(position: Position) -> Position:
        return position if everyone else positions.seen_by(caller, position)

    def find() -> wire.SparkPlace:
        earliest, latest = spark_store.store.bounds() if caller.somewhere("view") else ({}, {})
        found = None
        if caller.somewhere("view") and (since is not None or until is not None):
            found = seen(
                spark_store.store.at_time(since) if since is not None else spark_store.store.until_time(until or 0)
            )
        return wire.SparkPlace(seen(earliest), seen(latest), spark_store.store.now(), found)

    return answer(request, await _do(request, find))


@router.get("/journal", operation_id="spark_journal", **_arrow(more=(404,)))
async def journal(
    request: CurrentRequest,
    caller: CurrentCaller,
    spark_store: CurrentStore,
    partition: Annotated[str, Query(max_length=300)],
    after: Annotated[int, Query(ge=0, lt=1 << 62)],
    upto: Annotated[int, Query(ge=0, lt=1 << 62)],
    queue: Annotated[list[str], Query(max_length=_MOST_NAMES, description="Only these queues")] = [],  # noqa: B006 - read only
    everyone: Everyone = False,
) -> Response:
    """Transitions of one partition, after one offset and up to another."""
    from tampu.server.spark import arrow_stream, permissions
    from tampu.stores import columns

    tenant = await _tenant(request, caller, everyone)
    queues = permissions.viewed(caller, tuple(queue), await _do(request, spark_store.queues, tenant))
    known = positions.is_seen_by(caller, partition) or await request.server.of_all_tenants(caller)
    if not known or partition not in (await _do(request, spark_store.store.bounds))[1]:
        raise NotFound(f"the journal has no partition {partition}", field="partition")
    chosen = None if queues == () else queues or ()
    return await arrow_stream.answer(
        request,
        spark_store.slots,
        lambda: spark_store.store.journal(partition, after, upto, tenant, chosen),
        columns.JOURNAL,
    )


# -- messages


@router.post("/plan", operation_id="spark_plan", **doc(wire.SparkPlanned, wire.SparkPlan))
async def plan(request: CurrentRequest, caller: CurrentCaller, spark_store: CurrentStore) -> Response:
    """Plan a snapshot. Other processes can read its parts, from any node."""
    from tampu.server.spark import permissions
    from tampu.stores import columns
    from tampu.stores.port import MessageQuery

    body: wire.SparkPlan = await request.read_large(wire.PLAN)
    query = body.query
    tenant = await _tenant(request, caller, query.everyone)
    columns.chosen(columns.MESSAGES, query.columns)
    queues = permissions.viewed(caller, query.queues, await _do(request, spark_store.queues, tenant))
    if queues is None:
        return answer(request, wire.SparkPlanned({}, []))
    given = msgspec.structs.asdict(query) | {"queues": queues}
    del given["everyone"]
    planned = await _do(request, spark_store.store.plan, MessageQuery(tenant=tenant, **given), body.pieces)
    pieces = [spark_store.sign(Planned(tenant, queues, query.columns, piece)) for piece in planned.pieces]
    return answer(request, wire.SparkPlanned(planned.position, pieces))


@router.post("/messages", operation_id="spark_messages", **_arrow(wire.SparkPiece, more=(404,)))
async def messages(request: CurrentRequest, caller: CurrentCaller, spark_store: CurrentStore) -> Response:
    """The messages of one part of a plan."""
    from tampu.server.spark import arrow_stream
    from tampu.stores import columns

    body: wire.SparkPiece = await request.read_large(wire.PIECE)
    piece = spark_store.read(body.piece)
    if piece.tenant != await _tenant(request, caller, piece.tenant is None):
        raise NotFound("no such piece", field="piece")
    if piece.queues:
        caller.need("view", *piece.queues)
    else:
        caller.need_everywhere("view")
    schema = columns.chosen(columns.MESSAGES, piece.columns)
    return await arrow_stream.answer(
        request, spark_store.slots, lambda: spark_store.store.messages(piece.piece), schema
    )


@router.post("/deliveries", operation_id="spark_deliveries", **_arrow(bodies.Ids))
async def deliveries(request: CurrentRequest, caller: CurrentCaller, spark_store: CurrentStore) -> Response:
    """Messages by id, in the order of the ids, from queues that the caller may consume or view."""
    import pyarrow as pa

    from tampu.server.spark import arrow_stream
    from tampu.stores import columns

    body: bodies.Ids = await request.read(bodies.IDS)
    request.check_batch(body.ids, "ids")
    ids = [validate.id_text(id) for id in body.ids]
    caller.need_somewhere("view", "consume")

    def found() -> Any:
        table = spark_store.store.by_ids(caller.tenant, ids)
        may = [caller.may("consume", name) or caller.may("view", name) for name in table.column("queue").to_pylist()]
        yield from table.filter(pa.array(may, pa.bool_())).combine_chunks().to_batches()

    return await arrow_stream.answer(request, spark_store.slots, found, columns.MESSAGES)
