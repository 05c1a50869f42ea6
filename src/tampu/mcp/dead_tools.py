"""Tools for dead letters: groups, list, replay with preview and undo, purge."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta

from tampu.broker.dead.pages import MOST_READ
from tampu.mcp import views
from tampu.mcp.arguments import Cursor, Fingerprint, Ids, Limit, Moment, Scope, Text, dead_filters
from tampu.mcp.context import ToolContext
from tampu.mcp.inspect_tools import page
from tampu.mcp.tools import Plan, tool
from tampu.model.dead import DeadGroups, DeadJob
from tampu.model.errors import Forbidden, InvalidState, NotFound

ReplayId = Annotated[str, Meta(description="Id of a replay", max_length=64)]
_Error = Annotated[Annotated[str, Meta(max_length=500)] | None, Meta(description="Text that the last error contains")]
_Queue = Annotated[
    Annotated[str, Meta(max_length=200)] | None, Meta(description="A queue, a scope such as shop.*, or * for all")
]
_MOST_GROUPS = 30


def group_view(found: DeadGroups, most: int = _MOST_GROUPS) -> dict[str, Any]:
    answer: dict[str, Any] = {"groups": [views.plain(one, views.SHORT * 2) for one in found.groups[:most]]}
    if len(found.groups) > most:
        answer["more"] = len(found.groups) - most
    return answer | ({} if found.cursor is None else {"read": found.read, "cursor": found.cursor})


@tool("view")
async def dead_groups(
    at: ToolContext,
    queue: Scope = "*",
    type: Text = None,
    error: _Error = None,
    reason: Text = None,
    fingerprint: Fingerprint = None,
    since: Moment = None,
    until: Moment = None,
    cursor: Cursor = None,
) -> Any:
    """Dead letters by error, the largest group first: how many, since when, in which queues, and a sample to look at.

    A fingerprint is equal for errors that differ only in numbers and ids. At most 10,000 dead letters are read; with a
    cursor in the answer there are more.
    """
    filters = dead_filters(queue, reason, type, error, fingerprint, since, until)
    return group_view(await at.store.dead.groups(after=cursor, most=MOST_READ, **filters))


@tool("view")
async def list_dead(
    at: ToolContext,
    queue: Scope = "*",
    type: Text = None,
    error: _Error = None,
    reason: Text = None,
    fingerprint: Fingerprint = None,
    since: Moment = None,
    until: Moment = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Any:
    """Dead letters one by one, queue by queue, in each the oldest first."""
    filters = dead_filters(queue, reason, type, error, fingerprint, since, until)
    found = await at.store.dead.list(after=cursor, limit=limit, **filters)
    return page(found.messages, found.cursor)


@tool("operate")
async def list_replays(at: ToolContext) -> Any:
    """Replays of dead letters that run, or ended within a day, the newest first."""
    found = await at.store.dead.replays()
    return {"replays": [views.plain(one) for one in reversed(found[-50:])]}


def _preview(job: DeadJob) -> dict[str, Any]:
    if not job.count:
        raise InvalidState("no dead letter matches", hint="look with dead_groups or list_dead")
    shown: dict[str, Any] = {"count": job.count, "queues": job.queues, "first_ids": job.sample}
    return (
        shown if job.complete else shown | {"note": f"there are more than these {job.count:,}, which stay as they are"}
    )


@tool("operate", steps=2, destructive=True)
async def replay_dead(
    at: ToolContext,
    kept: dict[str, Any] | None,
    queue: _Queue = None,
    ids: Ids | None = None,
    type: Text = None,
    error: _Error = None,
    reason: Text = None,
    fingerprint: Fingerprint = None,
    since: Moment = None,
    until: Moment = None,
    rate: Annotated[Annotated[str, Meta(max_length=20)] | None, Meta(description="Such as 50/s, to go slowly")] = None,
    limit: Annotated[Annotated[int, Meta(ge=1, le=1_000_000)] | None, Meta(description="How many at most")] = None,
) -> Plan:
    """Run dead letters again, by ids or by filters; queue * is for all queues.

    What they did before they failed may happen twice. A replay can be undone for a minute, unless it was delivered.
    """
    selection, fixed = _selection(queue, ids, reason, type, error, fingerprint, since, until, kept)
    preview = await at.store.dead.replay(ids, limit=limit, dry_run=True, **selection)
    most = limit if preview.complete else preview.count

    async def act() -> Any:
        return views.plain(await at.store.dead.replay(ids, rate=rate, limit=most, **selection))

    shown = _preview(preview) | await _deaths(at, ids, preview)
    return Plan(shown | ({} if rate is None else {"rate": rate}), act, fixed)


@tool("operate", changes=True)
async def undo_replay(at: ToolContext, id: ReplayId) -> Any:
    """Stop a replay, and make dead again what it has replayed within the last minute and nobody was delivered since."""
    return views.plain(await at.store.dead.undo(id))


@tool("operate", changes=True)
async def cancel_replay(at: ToolContext, id: ReplayId) -> Any:
    """Stop a replay that runs. What was replayed stays so."""
    return views.plain(await at.store.dead.cancel(id))


@tool("operate", steps=2, destructive=True)
async def purge_dead(
    at: ToolContext,
    kept: dict[str, Any] | None,
    queue: _Queue = None,
    ids: Ids | None = None,
    type: Text = None,
    error: _Error = None,
    reason: Text = None,
    fingerprint: Fingerprint = None,
    since: Moment = None,
    until: Moment = None,
) -> Plan:
    """Remove dead letters for good, by ids or by filters; queue * is for all queues. This cannot be undone."""
    selection, fixed = _selection(queue, ids, reason, type, error, fingerprint, since, until, kept)
    preview = await at.store.dead.purge(ids, dry_run=True, **selection)

    async def act() -> Any:
        return views.plain(await at.store.dead.purge(ids, **selection))

    return Plan(_preview(preview) | await _deaths(at, ids, preview), act, fixed)


async def _deaths(at: ToolContext, ids: list[str] | None, job: DeadJob) -> dict[str, Any]:
    """When each of the chosen messages died: a confirmation is not for one that was replayed and died again."""
    if not ids:
        return {}
    died: dict[str, Any] = {}
    for id in dict.fromkeys([*ids, *job.sample]):
        with contextlib.suppress(NotFound, Forbidden):  # not there, or the key may not view it
            message = await at.store.get(id)
            died[id] = message.ended_at and message.ended_at.isoformat()
    return {"died": died}


def _selection(
    queue: str | None,
    ids: list[str] | None,
    reason: str | None,
    type: str | None,
    error: str | None,
    fingerprint: str | None,
    since: datetime | None,
    until: datetime | None,
    kept: dict[str, Any] | None,
) -> tuple[Any, dict[str, Any]]:
    """(the filters, what the second call keeps): of filters, only what had died when the preview was made."""
    if ids:
        return dead_filters(queue, reason, type, error, fingerprint, since, until), {}
    asked = datetime.fromisoformat(kept["until"]) if kept else datetime.now(UTC)
    filters = dead_filters(
        queue, reason, type, error, fingerprint, since, asked if until is None else min(until, asked)
    )
    if queue is None and not any((reason, type, error, fingerprint, since, until)):
        filters["until"] = until  # nothing was chosen: the store refuses that, and says how to choose
    return filters, {"until": asked.isoformat()}
