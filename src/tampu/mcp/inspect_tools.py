"""Tools that look at queues and messages, and at what was configured and done. None of them changes anything."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tampu.broker.admin.filters import Where
from tampu.broker.admin.verbs import Stats
from tampu.mcp import views
from tampu.mcp.arguments import Cursor, Id, Limit, Moment, Queue, Scope, Text
from tampu.mcp.context import ToolContext
from tampu.mcp.tools import tool
from tampu.model.config import is_pattern
from tampu.model.decoders import from_json
from tampu.model.errors import InvalidMessage
from tampu.model.message import Message, State

_read_place = from_json(tuple[str, str | None]).decode
_MOST_EMPTY = 200
"""Queues without a match that one call looks at."""


async def stats_of(at: ToolContext, scope: str) -> list[Stats]:
    found = await at.store.stats(scope)
    return sorted(found if isinstance(found, list) else [found], key=lambda one: one.queue)


@tool("view")
async def list_queues(at: ToolContext, scope: Scope = "*", limit: Limit = 50, cursor: Cursor = None) -> Any:
    """Queues by name, with how many messages each has by state, its status, and how long the oldest ready one waits."""
    found = [one for one in await stats_of(at, scope) if cursor is None or one.queue > cursor]
    shown = found[:limit]
    more = len(found) - len(shown)
    answer: dict[str, Any] = {"queues": [views.stats(one) for one in shown]}
    return answer | ({"more": more, "cursor": shown[-1].queue} if more else {})


def page(messages: list[Message], cursor: str | None) -> dict[str, Any]:
    return {"messages": [views.brief(m) for m in messages]} | ({} if cursor is None else {"cursor": cursor})


@tool("view")
async def list_messages(
    at: ToolContext, queue: Queue, state: State | None = None, limit: Limit = 20, cursor: Cursor = None
) -> Any:
    """Messages of one queue in its order, of one state or of all. With a cursor in the answer there are more."""
    found = await at.store.messages(queue, state=state, limit=limit, after=cursor)
    return page(found.messages, found.cursor)


@tool("view")
async def peek_queue(at: ToolContext, queue: Queue, limit: Limit = 5) -> Any:
    """The messages that the queue delivers next, without claiming them."""
    found = await at.store.messages(queue, state=State.READY, limit=limit)
    return page(found.messages, None)


@tool("view")
async def search_messages(
    at: ToolContext,
    queue: Scope = "*",
    state: State | None = None,
    type: Text = None,
    error: Annotated[
        Annotated[str, Meta(max_length=500)] | None, Meta(description="Text that the last error contains")
    ] = None,
    reason: Text = None,
    key: Text = None,
    group: Text = None,
    correlation_id: Text = None,
    labels: Annotated[
        Annotated[dict[str, str], Meta(max_length=20)] | None, Meta(description="All of these must match")
    ] = None,
    created_after: Moment = None,
    created_before: Moment = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Any:
    """Search messages by type, error, reason, key, group, correlation id, labels and time, in one queue or several.

    It reads the queues from their beginning: name a queue and a state where you can.
    """
    where = Where(
        type, reason, error, key, group, correlation_id, labels, created_after, created_before, None, None
    )  # fmt: skip
    where = Where.of(where)  # checked
    if not is_pattern(queue):
        found = await at.store.messages(queue, state=state, limit=limit, after=cursor, where=where)
        return page(found.messages, found.cursor)
    first, inner = _place(cursor)
    names = [
        one.queue
        for one in await stats_of(at, queue)
        if one.queue >= first and (any(one.counts.values()) if state is None else one.counts.get(state, 0))
    ]
    messages: list[Message] = []
    for looked, name in enumerate(names):
        if looked >= _MOST_EMPTY:
            return page(messages, _cursor(name, None))
        after = inner if name == first else None
        found = await at.store.messages(name, state=state, limit=limit - len(messages), after=after, where=where)
        messages += found.messages
        if found.cursor is not None:  # there are more, or they are large
            return page(messages, _cursor(name, found.cursor))
        if len(messages) >= limit:
            rest = names[looked + 1 : looked + 2]
            return page(messages, _cursor(rest[0], None) if rest else None)
    return page(messages, None)


def _cursor(queue: str, inner: str | None) -> str:
    return msgspec.json.encode((queue, inner)).decode()


def _place(cursor: str | None) -> tuple[str, str | None]:
    if cursor is None:
        return "", None
    try:
        return _read_place(cursor)
    except msgspec.MsgspecError:
        raise InvalidMessage(
            "this cursor is not of this search", field="cursor", hint="search again without a cursor"
        ) from None


@tool("view")
async def get_message(at: ToolContext, id: Id) -> Any:
    """Everything about one message: payload, state, failed attempts with tracebacks, result, review."""
    return views.full(await at.store.get(id))


@tool("view")
async def trace(
    at: ToolContext,
    id: Annotated[str, Meta(description="A correlation id, or the id of a message", max_length=256)],
    limit: Limit = 50,
) -> Any:
    """The story of related messages: what was published because of what, and what happened to each, with durations."""
    found = await at.store.trace(id, limit=limit)
    return views.plain(found, views.SHORT)


@tool("view")
async def get_settings(at: ToolContext, queue: Scope) -> Any:
    """The settings of a queue, scope or * as they are in effect, and where each comes from."""
    config = await at.store.queues.get(queue)
    sources = await at.store.queues.sources(queue)
    values = msgspec.to_builtins(config)
    return {"queue": queue, "settings": {n: {"value": values.get(n), "from": sources[n]} for n in sorted(sources)}}


@tool("view")
async def list_schedules(at: ToolContext, limit: Limit = 50, cursor: Cursor = None) -> Any:
    """Schedules by name: what each publishes where and when, its last and next run, and its error."""
    found = [one for one in await at.store.schedules.list() if cursor is None or one.name > cursor]
    shown = [schedule_view(one) for one in itertools.islice(found, limit)]
    more = len(found) - len(shown)
    return {"schedules": shown} | ({"more": more, "cursor": found[limit - 1].name} if more else {})


def schedule_view(schedule: Any) -> dict[str, Any]:
    fields = ("name", "queue", "status", "cron", "every", "tz", "limit", "missed", "fired", "last", "next", "error")
    found = {name: getattr(schedule, name) for name in fields}
    found["type"] = schedule.message.type
    shown: dict[str, Any] = views.bounded(
        msgspec.to_builtins({name: value for name, value in found.items() if value is not None})
    )
    return shown


@tool("view or review")
async def list_reviews(
    at: ToolContext,
    queue: Text = None,
    role: Text = None,
    assignee: Text = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Any:
    """Messages that wait for a person's decision: queue by queue, in each the oldest first."""
    found = await at.store.reviews.list(queue=queue, role=role, assignee=assignee, after=cursor, limit=limit)
    answer: dict[str, Any] = {"reviews": [views.plain(one, views.SHORT) for one in found]}
    return answer | ({} if found.cursor is None else {"cursor": found.cursor})


@tool("view or review")
async def get_review(at: ToolContext, id: Id) -> Any:
    """One review: what the reviewer sees, the options, the fields of the form, votes and comments."""
    return views.plain(await at.store.reviews.get(id))


@tool("admin", everywhere=True)
async def list_audit(
    at: ToolContext,
    actor: Text = None,
    action: Annotated[
        Annotated[str, Meta(max_length=500)] | None, Meta(description="Such as queue.purge or dead.replay")
    ] = None,
    target: Text = None,
    since: Moment = None,
    until: Moment = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Any:
    """Who changed what and when: settings, schedules, replays, purges, decisions, keys. Without since: of one day."""
    if since is None and cursor is None:
        since = (datetime.now(UTC) if until is None else until) - timedelta(days=1)
    found = await at.store.audit(
        actor=actor, action=action, target=target, since=since, until=until, after=cursor, limit=limit
    )
    answer: dict[str, Any] = {"records": [views.plain(one, views.SHORT) for one in found.records]}
    return answer | ({} if found.cursor is None else {"cursor": found.cursor})


@tool("view", everywhere=True, all_tenants=True)
async def list_agents(at: ToolContext) -> Any:
    """The maintenance tasks and followers of the store: what each does, when it last ran, lag, and its error."""
    return {"agents": [views.plain(one, views.SHORT) for one in (await at.store.agents.list())[:100]]}
