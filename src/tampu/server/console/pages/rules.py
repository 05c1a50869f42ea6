"""Rules: what happens to which messages; put as JSON, and tested on a message."""

from __future__ import annotations

from fastapi import Response

from tampu.broker import validate
from tampu.broker.policies.rules.verbs import RULES
from tampu.model.definitions import RuleTest
from tampu.server.console.definitions_page import DefinitionPages
from tampu.server.console.page import Page, View
from tampu.server.console.parts import json_field, labels_field, pretty
from tampu.server.routes.messages import find

page = Page("rules", "Rules", group="2 Set up")
_EXAMPLE = {"when": "message.payload.total > 1000.0", "queues": ["orders"], "actions": [{"route": "large-orders"}]}


@page.show("/rules")
async def rules(view: View) -> Response:
    found = await RULE_PAGES.list(view)
    shown = [(one, may, [pretty(action) for action in one.actions]) for one, may in found]
    return await view.html("rules.html", rules=shown, may_make=view.caller.somewhere("operate"))


RULE_PAGES = DefinitionPages(page, RULES, _EXAMPLE, "rules")


@page.show("/rules/{name}")
async def rule(view: View, name: str) -> Response:
    """One rule, and the form that tests it: a test changes nothing, so it is a GET."""
    found = await RULE_PAGES.find(view, name)
    given = view.query
    tested: RuleTest | None = None
    if "id" in given or "payload" in given:
        if "id" in given:
            await find(view.request, view.caller, given["id"], "view")
        if "queue" in given:
            await view.request.server.load_settings(view.caller.tenant, validate.name(given["queue"], "queue"))
        tested = await view.drive(
            view.verbs.test_rule(
                name, json_field(given, "payload"), id=given.get("id"), queue=given.get("queue"),
                type=given.get("type"), labels=labels_field(given),
            )
        )  # fmt: skip
    return await view.html("rule.html", rule=found, text=RULE_PAGES.text(found), tested=tested, given=given,
                           may=all(view.caller.may_all("operate", place) for place in RULES.places(found)))  # fmt: skip
