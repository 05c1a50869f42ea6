"""Agents and alerts: what maintenance does, what it could not do, and which alerts fire."""

from __future__ import annotations

from fastapi import Response

from tampu.broker.policies.alerts.verbs import ALERTS
from tampu.model.agents import Agent
from tampu.model.errors import InvalidState
from tampu.server.console.definitions_page import DefinitionPages
from tampu.server.console.page import Ask, Page, View
from tampu.server.console.parts import quoted
from tampu.server.routes.definitions import may_see_firing

page = Page("agents", "Agents and alerts", group="3 Run")
_EXAMPLE = {"measure": "dead", "above": 10, "within": "1h", "queues": ["*"]}
_VERBS = {
    "run": ("Run", "The leader runs it now, besides its regular runs.", "asked to run"),
    "pause": ("Pause", "It stops in all processes until it is resumed.", "paused"),
    "resume": ("Resume", "It goes on from where it is.", "resumed"),
}


@page.show("/agents")
async def agents(view: View) -> Response:
    firing = [one for one in await view.drive(view.verbs.alert_status()) if may_see_firing(view.caller, one)]
    shown = view.all_tenants and view.caller.everywhere("view")
    found: list[Agent] = await view.drive(view.verbs.list_agents()) if shown else []
    return await view.html(
        "agents.html",
        agents=found,
        shown=shown,
        may=view.all_tenants and view.caller.everywhere("admin"),
        firing=firing,
        alerts=await ALERT_PAGES.list(view),
        may_make=view.caller.somewhere("operate"),
    )


ALERT_PAGES = DefinitionPages(page, ALERTS, _EXAMPLE, "agents")


@page.act("/agents/{name}/{verb}")
async def act(view: View, name: str, verb: str) -> Ask:
    view.need_store("admin")
    agent: Agent = await view.drive(view.verbs.get_agent(name))
    if verb not in _VERBS:
        raise InvalidState(f"{verb} is not an act of an agent", hint=f"acts are {', '.join(_VERBS)}")
    word, text, after = _VERBS[verb]

    async def do() -> Response:
        await view.drive(getattr(view.verbs, f"{word.lower()}_agent")(name))
        return view.done(f"{name} is {after}.", "agents")

    return Ask(
        title=f"{word} {name}?", text=f"{agent.role}. {text}", button=word, danger=verb == "pause", do=do,
        back=f"agents#{quoted(name)}",
    )  # fmt: skip
