"""Schedules: what is published when, the next ticks, run now, pause and resume."""

from __future__ import annotations

from fastapi import Response

from tampu.broker.schedules import ticks
from tampu.model.message import Message
from tampu.model.schedule import Schedule
from tampu.model.times import SECOND, instant, moment
from tampu.server.console.page import Ask, Page, View
from tampu.server.console.parts import quoted
from tampu.server.console.render import value
from tampu.server.routes.schedules import find_schedule

page = Page("schedules", "Schedules", group="2 Set up")
_NEXT = 3


@page.show("/schedules")
async def schedules(view: View) -> Response:
    found = [one for one in await view.drive(view.verbs.list_schedules()) if view.may("view", one.queue)]
    return await view.html("schedules.html", schedules=[(one, _next(one), value(one.payload)[:300]) for one in found])


def _next(schedule: Schedule) -> list[object]:
    """The next few times, without jitter."""
    if schedule.next is None:
        return []
    found = [instant(schedule.next, "next")]
    every = None if schedule.every is None else round(schedule.every.total_seconds() * SECOND)
    end = None if schedule.end is None else instant(schedule.end, "end")
    timing = ticks.Timing(schedule.cron, every, schedule.tz, anchor_us=found[0], end_us=end)
    while len(found) < _NEXT and (after := ticks.following(timing, found[-1])) is not None:
        found.append(after)
    return [moment(each) for each in found]


async def _find(view: View, name: str) -> Schedule:
    return await find_schedule(view.request, view.caller, name, "operate")


@page.act("/schedules/{name}/run")
async def run(view: View, name: str) -> Ask:
    schedule = await _find(view, name)
    view.need("publish", schedule.queue)
    await view.request.server.load_settings(view.caller.tenant, schedule.queue)

    async def do() -> Response:
        made: Message = await view.drive(view.verbs.fire_schedule(name))
        return view.done(f"Published {made.id}.", f"messages/{quoted(made.id)}")

    return Ask(
        title=f"Run {name} now?", text=f"It publishes one message to {schedule.queue}, besides its regular runs.",
        button="Run now", do=do, back="schedules",
    )  # fmt: skip


@page.act("/schedules/{name}/pause")
async def pause(view: View, name: str) -> Ask:
    schedule = await _find(view, name)

    async def do() -> Response:
        await view.drive(view.verbs.pause_schedule(name))
        return view.done(f"Paused {schedule.name}.", "schedules")

    return Ask(
        title=f"Pause {name}?", text="Runs that are missed until it is resumed are skipped.", button="Pause", do=do,
        back="schedules",
    )  # fmt: skip


@page.act("/schedules/{name}/resume")
async def resume(view: View, name: str) -> Ask:
    schedule = await _find(view, name)

    async def do() -> Response:
        await view.drive(view.verbs.resume_schedule(name))
        return view.done(f"Resumed {schedule.name}.", "schedules")

    return Ask(title=f"Resume {name}?", text="It runs again from now on.", button="Resume", do=do, back="schedules")


@page.act("/schedules/{name}/delete")
async def delete(view: View, name: str) -> Ask:
    schedule = await _find(view, name)

    async def do() -> Response:
        await view.drive(view.verbs.delete_schedule(name))
        return view.done(f"Deleted {schedule.name}.", "schedules")

    return Ask(
        title=f"Delete {name}?", text="The messages that it has published stay.", button="Delete", danger=True, do=do,
        back="schedules",
    )  # fmt: skip
