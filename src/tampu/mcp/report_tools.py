"""Tools that put several answers together: what needs attention, why a message failed, and insights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from tampu.broker.admin.verbs import Stats
from tampu.broker.dead.filters import error_of, fingerprint_of
from tampu.broker.dead.pages import MOST_READ
from tampu.mcp import lake, views
from tampu.mcp.arguments import Id, Scope
from tampu.mcp.context import ToolContext
from tampu.mcp.dead_tools import group_view
from tampu.mcp.inspect_tools import stats_of
from tampu.mcp.tools import tool
from tampu.model.errors import Forbidden, NotFound
from tampu.model.message import Message, State

R = TypeVar("R")
_OLD_SECONDS = 300
_MOST_QUEUES = 20
_MOST_LINES = 30
_TRANSITIONS = 2000


async def _if_allowed(answer: Awaitable[R]) -> R | None:
    """None if the caller may not see it, or not all that it takes."""
    try:
        return await answer
    except Forbidden:
        return None


@tool("view")
async def overview(at: ToolContext, scope: Scope = "*") -> Any:
    """Begin here: what needs attention now, then the queues with most dead and waiting messages, and the largest groups
    of dead letters."""
    found = await stats_of(at, scope)
    attention = [line for one in found for line in _of_queue(one)]
    alerts = await _if_allowed(at.store.alerts.status())
    attention += [f"alert {one.alert} fires for {one.target} since {one.since.isoformat()}" for one in alerts or ()]
    for schedule in await _if_allowed(at.store.schedules.list()) or ():
        if schedule.error is not None:
            attention.append(f"schedule {schedule.name} cannot publish: {views.cut(schedule.error, views.SHORT)}")
    reviews = await _if_allowed(at.store.reviews.list(limit=100))
    if reviews:
        attention.append(
            f"{len(reviews)}{' or more' if reviews.cursor else ''} reviews wait for a decision, the oldest since "
            f"{min(one.opened_at for one in reviews).isoformat()}"
        )
    if at.access.may("view", everywhere=True, all_tenants=True):
        for agent in await _if_allowed(at.store.agents.list()) or ():
            if agent.error is not None or agent.status in ("waiting", "parked"):
                attention.append(f"agent {agent.name} is {agent.status}: {views.cut(agent.error or '', views.SHORT)}")
    worst = sorted(found, key=lambda one: (-one.counts.get(State.DEAD, 0), -one.depth, one.queue))
    totals = {str(state): sum(one.counts.get(state, 0) for one in found) for state in State}
    answer: dict[str, Any] = {
        "attention": attention[:_MOST_LINES],
        "queues": [views.stats(one) for one in worst[:_MOST_QUEUES]],
        "totals": {state: count for state, count in totals.items() if count} | {"queues": len(found)},
    }
    if len(attention) > _MOST_LINES:
        answer["more_attention"] = len(attention) - _MOST_LINES
    if totals[State.DEAD]:
        answer["dead_groups"] = group_view(await at.store.dead.groups(queue=scope, most=MOST_READ), 5)["groups"]
    return answer


def _of_queue(one: Stats) -> list[str]:
    lines = []
    if dead := one.counts.get(State.DEAD, 0):
        lines.append(f"queue {one.queue} has {dead:,} dead letter{'' if dead == 1 else 's'}")
    if one.status != "open":
        lines.append(f"queue {one.queue} is {one.status}, with {one.depth:,} waiting")
    age = one.oldest_ready_age
    if age is not None and age.total_seconds() > _OLD_SECONDS:
        working = one.counts.get(State.LEASED, 0)
        who = f"{working:,} are being worked on" if working else "nobody works on this queue"
        lines.append(f"queue {one.queue}: the oldest ready message waits for {round(age.total_seconds()):,} s, {who}")
    return lines


@tool("view")
async def explain_failure(at: ToolContext, id: Id) -> Any:
    """Why a message failed: its attempts with tracebacks, its timeline, the settings that decided, and similar failures
    by the fingerprint of the error, now and from the lake."""
    message = await at.store.get(id)
    answer: dict[str, Any] = {"message": views.full(message), "timeline": await _timeline(at, message)}
    config = await _if_allowed(at.store.queues.get(message.queue))
    if config is not None:
        settings = {"max_attempts": message.max_attempts, "lease_seconds": config.lease}
        answer["settings"] = settings | {"backoff": views.plain(config.backoff), "status": config.status}
    error = error_of(message)
    if not error:
        return answer | {"note": f"this message is {message.state} and has no failure"}
    mark = fingerprint_of(message)
    groups = await at.store.dead.groups(queue="*", fingerprint=mark, most=MOST_READ)
    answer |= {"error": views.cut(error, views.LONG), "fingerprint": mark, "similar_dead": group_view(groups)["groups"]}
    if at.lake is not None:
        answer["similar_in_lake"] = await at.offload(lake.similar, at.lake, at.store.tenant, mark)
    return answer


async def _timeline(at: ToolContext, message: Message) -> Any:
    try:
        found = await at.store.trace(message.id, limit=200)
    except NotFound:
        return []
    return [views.plain(event, views.SHORT) for one in found if one.id == message.id for event in one.events]


@tool("view", everywhere=True)
async def insights(
    at: ToolContext, days: Annotated[int, Meta(description="Days of the lake, up to its latest", ge=1, le=90)] = 7
) -> Any:
    """Throughput, failures, slow tasks, workers, objectives and forecasts, from the lake. Without a lake: the latest
    changes of the store."""
    if at.lake is not None:
        return await at.offload(lake.insights, at.lake, at.store.tenant, days)
    latest = (await at.store.journal(limit=1)).latest
    start = {partition: max(0, offset - _TRANSITIONS) for partition, offset in latest.items()}
    page = await at.store.journal(after=start, limit=_TRANSITIONS, details=True)
    verbs: dict[str, Counter[str]] = {}
    failing: Counter[str] = Counter()
    for one in page.transitions:
        verbs.setdefault(one.queue, Counter())[one.verb] += 1
        if one.fingerprint is not None:
            failing[views.cut(one.detail or one.fingerprint, views.SHORT)] += 1
    times = [one.at for one in page.transitions]
    most = sorted(verbs.items(), key=lambda item: -item[1].total())[:_MOST_QUEUES]
    return {
        "source": "journal",
        "note": "there is no lake to read; `tampu pipeline run --once` makes one, with days instead of moments",
        "transitions": len(times),
        "since": min(times, default=None),
        "until": max(times, default=None),
        "queues": [{"queue": queue, **counts} for queue, counts in most],
        "errors": [{"error": text, "failures": count} for text, count in failing.most_common(10)],
    }
