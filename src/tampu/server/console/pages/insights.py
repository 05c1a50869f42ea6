"""Insights: the report of the lake if there is one, else what the journal says of the last hour."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastapi import Response

from tampu.server.console import journal_pages, lake, render
from tampu.server.console.page import Page, View
from tampu.server.console.parts import hour_of, number_field, rates, stats_of, times

page = Page("insights", "Insights", group="3 Run", everywhere=True)
_FAILURES = 1000
_DAYS = (1, 7, 30)


@page.show("/insights")
async def insights(view: View) -> Response:
    path = lake.place(view.request.server.settings)
    given: dict[str, Any] = {"lake": path, "days": _days(view), "choices": _DAYS, "questions": lake.QUESTIONS}
    if path is not None:  # its report is in a frame: the journal is not read
        return await view.html("insights.html", **given)
    stats = await stats_of(view)
    hour = await hour_of(view, stats)
    failed = await view.read(journal_pages.failures, view.engine, view.caller.tenant, _FAILURES)
    errors = Counter(one.detail or one.verb for one in failed if view.may("view", one.queue))
    last = view.request.server.last_hour
    lines = [(one.queue, last.hour(view.caller.tenant, {one.queue: one.depth})) for one in stats]
    return await view.html(
        "insights.html",
        **given,
        hour=hour,
        rates=rates(hour),
        waits=times(hour.waits),
        runs=times(hour.runs),
        lines=[(queue, each) for queue, each in lines if not each.quiet][:50],
        errors=errors.most_common(15),
    )


def _days(view: View) -> int:
    days = number_field(view.query, "days") or 7
    return days if days in _DAYS else 7


@page.show("/insights/report")
async def report(view: View) -> Response:
    """The lake's report by itself; the page shows it in a frame."""
    path = lake.place(view.request.server.settings)
    if path is None:
        return await view.html("insights_none.html", 404)
    made = await view.read(view.request.server.reports.page, path, view.caller.tenant, _days(view))
    return Response(made, 200, lake.report_headers(render.HEADERS), "text/html; charset=utf-8")
