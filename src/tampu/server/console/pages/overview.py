"""The overview: what needs attention first, the last hour, the queues that do most, recent failures."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import Response

from tampu.broker.admin.verbs import Stats
from tampu.model.agents import Agent
from tampu.model.definitions import Firing
from tampu.model.message import State
from tampu.server.console import journal_pages
from tampu.server.console.last_hour import Hour
from tampu.server.console.page import Page, View, redirect
from tampu.server.console.parts import address, hour_of, plural, quoted, rates, stats_of, times
from tampu.server.console.render import age
from tampu.server.routes.definitions import may_see_firing


class _Overview(Page):
    """Who may only review is led to the reviews."""

    def check(self, view: View) -> None:
        view.caller.need_somewhere("view", "review")


page = _Overview("overview", "Overview", path="", group="1", needs=("view",))
_OLD = timedelta(minutes=5)
_FAILURES = 12
_QUEUES = 12
_MOST_REVIEWS = 100


@page.show("/")
async def overview(view: View) -> Response:
    if not view.caller.somewhere("view"):
        return redirect("reviews")
    stats = await stats_of(view)
    hour = await hour_of(view, stats)
    failed = await view.read(journal_pages.failures, view.engine, view.caller.tenant, _FAILURES * 4)
    whole_store = view.all_tenants and view.caller.everywhere("view")
    agents: list[Agent] = await view.drive(view.verbs.list_agents()) if whole_store else []
    firing = [one for one in await view.drive(view.verbs.alert_status()) if may_see_firing(view.caller, one)]
    reviews = await _open_reviews(view)
    busiest = sorted(stats, key=lambda one: (-one.depth, one.queue))[:_QUEUES]
    last = view.request.server.last_hour
    return await view.html(
        "overview.html",
        attention=_attention(stats, hour, firing, agents, reviews),
        stats=stats,
        busiest=busiest,
        hours={one.queue: last.hour(view.caller.tenant, {one.queue: one.depth}) for one in busiest},
        hour=hour,
        rates=rates(hour),
        waits=times(hour.waits),
        oldest=max((one.oldest_ready_age for one in stats if one.oldest_ready_age), default=None),
        totals={state: sum(one.counts.get(state, 0) for one in stats) for state in State},
        failures=[one for one in failed if view.may("view", one.queue)][:_FAILURES],
    )


@page.show("/find")
async def find(view: View) -> Response:
    """The search field: a queue by its name, else a message, else a story by its correlation id."""
    view.caller.need_somewhere("view")
    text = view.query.get("id", "")
    if not text:
        return redirect("./")
    names = [one.queue for one in await stats_of(view)]
    if text in names:
        return redirect(f"queues/{quoted(text)}")
    return redirect(address("messages", correlation=text) if "/" in text else f"messages/{quoted(text)}")


async def _open_reviews(view: View) -> int:
    def may(queue: str) -> bool:
        return view.may("review", queue)

    if not view.caller.somewhere("review"):
        return 0
    return len(await view.listing(view.verbs.open_reviews(None, None, None, None, None, _MOST_REVIEWS, may)))


def _attention(
    stats: list[Stats], hour: Hour, firing: list[Firing], agents: list[Agent], reviews: int
) -> list[dict[str, Any]]:
    """What somebody should look at, the worst first."""
    found: list[dict[str, Any]] = []

    def add(bad: bool, text: str, about: str, href: str) -> None:
        found.append({"bad": bad, "text": text, "about": about, "href": href})

    for alert in firing:
        add(True, f"Alert {alert.alert}", f"{alert.target}: {alert.value:g} since {alert.since:%H:%M} UTC", "agents")
    for agent in agents:
        if agent.error:
            add(True, f"Agent {agent.name}", agent.error, "agents")
        elif agent.status == "paused":
            add(False, f"Agent {agent.name} is paused", agent.role, "agents")
    if (dead := sum(hour.dead)) > 0:
        names = ", ".join(one.queue for one in stats if one.dead)
        add(True, f"{plural(dead, 'new dead letter')} in the last hour", names, "dead")
    for one in stats:
        if one.oldest_ready_age is not None and one.oldest_ready_age > _OLD and one.status == "open":
            about = f"its oldest message waits for {age(one.oldest_ready_age)}"
            add(False, one.queue, about, f"queues/{quoted(one.queue)}")
    for one in stats:
        if one.status != "open":
            about = plural(one.depth, "message") + " in it"
            add(False, f"{one.queue} is {one.status}", about, f"queues/{quoted(one.queue)}")
    if reviews:
        count = f"{reviews} or more" if reviews == _MOST_REVIEWS else str(reviews)
        add(False, f"{count} open review{'s' if reviews != 1 else ''}", "somebody has to decide", "reviews")
    return sorted(found, key=lambda one: not one["bad"])[:20]
