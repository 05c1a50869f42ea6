"""Tools that change something: publish, cancel, pause, settings, purge, schedules, reviews."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tampu.broker.schedules.ticks import checked_cron
from tampu.mcp import views
from tampu.mcp.arguments import Id, Ids, Name, Queue, Scope, Text
from tampu.mcp.confirmations import digest
from tampu.mcp.context import ToolContext
from tampu.mcp.inspect_tools import schedule_view
from tampu.mcp.tools import Plan, error_view, tool
from tampu.model.config import change
from tampu.model.errors import InvalidState, NotFound
from tampu.model.message import State

Duration = Annotated[float | str | None, Meta(description="Seconds, or such as 90s, 5m, 2h")]
Payload = Annotated[Any, Meta(description="Any JSON value")]
_OF_RUNS = ("fired", "last", "last_id", "next", "error")
"""What each run of a schedule changes."""
_TERMS = ("start", "end", "limit", "jitter", "missed")
_OPTIONS = (
    "priority", "delay", "ttl", "deadline", "key", "labels", "headers", "max_attempts", "correlation_id",
    "causation_id", "parent_id", "group", "source", "hold",
)  # fmt: skip
"""What a schedule and its message have besides the arguments of put_schedule."""
Purgeable = Literal["ready", "delayed", "held", "done", "dead", "cancelled", "expired"]


@tool("publish", changes=True)
async def publish(
    at: ToolContext,
    queue: Queue,
    payload: Payload,
    type: Text = None,
    delay: Duration = None,
    priority: int = 0,
    key: Text = None,
    idempotency_key: Annotated[
        Annotated[str, Meta(max_length=500)] | None,
        Meta(description="The same key again finds the first message and publishes none"),
    ] = None,
    correlation_id: Text = None,
    group: Text = None,
    labels: Annotated[dict[str, str], Meta(max_length=20)] | None = None,
) -> Any:
    """Publish one message. With an idempotency_key it is safe to call this again after an error."""
    message = await at.store.publish(
        queue, payload, type=type, delay=delay, priority=priority, key=key,
        idempotency_key=idempotency_key, correlation_id=correlation_id, group=group, labels=labels,
    )  # fmt: skip
    return {"id": message.id, "state": message.state, "duplicate": message.duplicate}


@tool("operate", steps=2, destructive=True)
async def cancel_messages(at: ToolContext, kept: dict[str, Any] | None, ids: Ids) -> Plan:
    """Cancel messages that wait; the workers of those that run are asked to stop."""
    del kept  # the ids are all there is
    found = [await at.store.get(id) for id in ids]

    async def act() -> Any:
        outcomes = await at.store.cancel(*ids)
        return {"outcomes": [_outcome(one) for one in outcomes]}

    return Plan({"messages": [{"id": m.id, "queue": m.queue, "state": m.state, "type": m.type} for m in found]}, act)


def _outcome(outcome: Any) -> dict[str, Any]:
    error = {} if outcome.error is None else error_view(outcome.error)
    return {"id": outcome.id, "state": outcome.state} | error


@tool("operate", changes=True)
async def pause_queue(at: ToolContext, queue: Queue) -> Any:
    """Stop deliveries of a queue until resume_queue. Publishing goes on."""
    await at.store.pause(queue)
    return views.stats(await at.store.stats(queue))


@tool("operate", changes=True)
async def resume_queue(at: ToolContext, queue: Queue) -> Any:
    """Let a paused, draining or closed queue deliver and accept messages again."""
    await at.store.resume(queue)
    return views.stats(await at.store.stats(queue))


@tool("operate", steps=2, destructive=True)
async def purge_queue(
    at: ToolContext,
    kept: dict[str, Any] | None,
    queue: Queue,
    states: Annotated[list[Purgeable], Meta(description="Messages in these states", min_length=1)],
) -> Plan:
    """Remove all messages of a queue in some states for good. It cannot be undone. For dead letters use purge_dead."""
    del kept  # the preview is compared
    chosen = [State(one) for one in states]
    counts = (await at.store.stats(queue)).counts
    shown = {one: counts.get(State(one), 0) for one in states}
    if not any(shown.values()):
        raise InvalidState(f"queue {queue} has no such messages", hint="look with list_queues")

    async def act() -> Any:
        return {"removed": await at.store.purge(queue, state=chosen)}

    return Plan({"queue": queue, "messages": shown}, act)


@tool("operate", steps=2, destructive=True)
async def change_settings(
    at: ToolContext,
    kept: dict[str, Any] | None,
    queue: Scope,
    settings: Annotated[
        dict[str, Any], Meta(description="New values by name, as get_settings has them; null inherits again")
    ],
) -> Plan:
    """Change settings of a queue, a scope or * (all queues), such as max_attempts, lease or dead_retention."""
    del kept  # the preview is compared
    own = await at.store.queues.get(queue, inherited=False)
    before, after = msgspec.to_builtins(own), msgspec.to_builtins(change(own, settings))
    names = sorted(name for name in settings if before.get(name) != after.get(name))
    if not names:
        raise InvalidState("these settings are like this already", hint="look with get_settings")
    shown = {name: {"before": before.get(name), "after": after.get(name)} for name in names}

    async def act() -> Any:
        await at.store.queues.put(queue, **settings)
        return {"queue": queue, "changed": shown}

    return Plan({"queue": queue, "own_settings": shown, "note": "null: inherited"}, act)


@tool("operate", steps=2, destructive=True)
async def put_schedule(
    at: ToolContext,
    kept: dict[str, Any] | None,
    name: Name,
    queue: Queue,
    payload: Payload = None,
    cron: Annotated[Annotated[str, Meta(max_length=200)] | None, Meta(description="Such as 0 8 * * 1-5")] = None,
    every: Duration = None,
    tz: Annotated[str, Meta(description="Time zone of cron, such as Europe/Zurich", max_length=100)] = "UTC",
    type: Text = None,
) -> Plan:
    """Create or change a schedule: publish a message by cron, or at an interval.

    A limit, labels, priority and other options that it has stay as they are.
    """
    del kept  # the preview is compared
    if cron is not None:
        cron = checked_cron(cron, tz, 0)
    stays: dict[str, Any] = {}
    try:
        found = await at.store.schedules.get(name)
        definition = {field: getattr(found, field) for field in found.__struct_fields__ if field not in _OF_RUNS}
        before = _stable(schedule_view(found)) | {"digest": digest(definition)}
        stays = {field: getattr(found, field) for field in _TERMS} | {
            field: getattr(found.message, field) for field in _OPTIONS
        }
    except NotFound:
        before = None
    after = {"queue": queue, "cron": cron, "every": every, "tz": tz, "type": type, "payload": payload}

    async def act() -> Any:
        made = await at.store.schedules.put(
            name, queue=queue, payload=payload, cron=cron, every=every, tz=tz, type=type, **stays
        )
        return schedule_view(made)

    return Plan({"schedule": name, "before": before, "after": after}, act)


def _stable(view: dict[str, Any]) -> dict[str, Any]:
    """A schedule without what each of its runs changes."""
    return {name: value for name, value in view.items() if name not in _OF_RUNS}


@tool("operate", steps=2, destructive=True)
async def delete_schedule(at: ToolContext, kept: dict[str, Any] | None, name: Name) -> Plan:
    """Delete a schedule. What it has published stays."""
    del kept  # the preview is compared
    found = await at.store.schedules.get(name)

    async def act() -> Any:
        return {"deleted": await at.store.schedules.delete(name)}

    return Plan({"schedule": _stable(schedule_view(found))}, act)


@tool("operate", changes=True)
async def pause_schedule(at: ToolContext, name: Name) -> Any:
    """Let a schedule publish nothing until resume_schedule. What it misses is skipped."""
    return schedule_view(await at.store.schedules.pause(name))


@tool("operate", changes=True)
async def resume_schedule(at: ToolContext, name: Name) -> Any:
    """Let a paused schedule publish again, from now on."""
    return schedule_view(await at.store.schedules.resume(name))


@tool("operate", changes=True)
async def run_schedule(at: ToolContext, name: Name) -> Any:
    """Publish the message of a schedule now, apart from its times."""
    message = await at.store.schedules.fire(name)
    return {"id": message.id, "queue": message.queue, "state": message.state}


@tool("review", steps=2, destructive=True)
async def decide_review(
    at: ToolContext,
    kept: dict[str, Any] | None,
    id: Id,
    option: Annotated[str, Meta(description="Name of one of the review's options", max_length=200)],
    reason: Text = None,
    fields: Annotated[
        Annotated[dict[str, Any], Meta(max_length=100)] | None, Meta(description="Values of the form")
    ] = None,
) -> Plan:
    """Decide a review for the person you work for: ask them first. Their key is named as who decided."""
    del kept  # the preview is compared
    review = await at.store.reviews.get(id)
    if review.state != "open":
        raise InvalidState(f"this review is {review.state}", hint="look with get_review")
    chosen = next((one for one in review.options if one.name == option), None)
    if chosen is None:
        names = ", ".join(one.name for one in review.options)
        raise NotFound(f"this review has no option {option}", field="option", hint=f"options are {names}")
    shown = {
        "id": id, "queue": review.queue, "sections": views.plain(review.sections), "option": option,
        "outcome": chosen.outcome, "reason": reason, "fields": fields or {}, "votes": views.plain(review.votes),
    }  # fmt: skip

    async def act() -> Any:
        return views.plain(await at.store.reviews.decide(id, option, reason=reason, fields=fields))

    return Plan(shown, act)


@tool("review", changes=True)
async def comment_review(at: ToolContext, id: Id, text: Annotated[str, Meta(min_length=1, max_length=4000)]) -> Any:
    """Add a comment to a review, for those who decide it."""
    return views.plain(await at.store.reviews.comment(id, text))
