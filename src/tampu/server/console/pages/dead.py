"""Dead letters: by error, and one by one; replay and purge of all that match, with a preview, progress and undo."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from fastapi import Response

from tampu.broker.dead.filters import DeadFilters, error_of
from tampu.broker.store import AllVerbs
from tampu.model.config import is_pattern
from tampu.model.dead import DeadGroups, DeadJob
from tampu.model.errors import InvalidMessage
from tampu.server.console.page import Ask, Page, View
from tampu.server.console.parts import address, moment_field, number_field, plural
from tampu.server.routes.admin import charge_moved

page = Page("dead", "Dead letters", group="1")
_TEXTS = ("queue", "type", "reason", "error", "fingerprint")
_LISTED = 50
_STEPS = 20
"""Steps of 10,000 messages that one purge takes."""


def _filters(view: View) -> tuple[DeadFilters, dict[str, str]]:
    """(the filters, the fields that say so)"""
    given = {name: view.query[name] for name in (*_TEXTS, "since", "until") if name in view.query}
    found: dict[str, Any] = {name: given[name] for name in _TEXTS if name in given}
    for name in ("since", "until"):
        if (at := moment_field(given, name)) is not None:
            found[name] = at
    return cast(DeadFilters, found), given


def _verbs(view: View, permission: str, queue: str | None = None) -> AllVerbs:
    """The verbs, for the queues in which the caller has the permission."""
    view.caller.need_somewhere(permission)
    if queue is not None and not is_pattern(queue):
        view.need(permission, queue)
    return view.verbs.limited_to(view.caller.patterns(permission))


@page.show("/dead")
async def show(view: View) -> Response:
    filters, given = _filters(view)
    verbs = _verbs(view, "view", filters.get("queue"))
    operates = view.caller.somewhere("operate")
    groups: DeadGroups = await view.listing(verbs.group_some_dead(**filters), lambda found: found.read)
    one = "fingerprint" in given
    page_of = (
        await view.listing(verbs.list_dead(limit=_LISTED, after=view.query.get("after"), **filters)) if one else None
    )
    jobs: list[DeadJob] = await view.listing(_verbs(view, "operate").list_dead_replays()) if operates else []
    stats = [each for each in await view.listing(view.verbs.stats()) if view.may("view", each.queue)]
    now = datetime.now(UTC)
    return await view.html(
        "dead.html",
        given=given,
        groups=groups,
        count=sum(group.count for group in groups),
        whole=sum(each.dead for each in stats),
        messages=None if page_of is None else [(each, error_of(each)) for each in page_of],
        more=None if page_of is None or page_of.cursor is None else address("dead", **given, after=page_of.cursor),
        jobs=[(job, _acts(job, now)) for job in reversed(jobs)],
        running=any(job.status in ("running", "undoing") for job in jobs),
        operates=operates,
        link=lambda path, **more: address(path, **{**(given or {"queue": "*"}), **more}),
    )


def _acts(job: DeadJob, now: datetime) -> list[str]:
    found = ["cancel"] if job.status == "running" else []
    if job.status in ("running", "done", "cancelled") and job.undo_until is not None and job.undo_until > now:
        found.append("undo")
    return found


def _words(given: dict[str, str], ids: list[str]) -> str:
    if ids:
        return plural(len(ids), "chosen message")
    return ", ".join(f"{name} {value}" for name, value in given.items() if name != "queue" or value != "*")


async def _preview(view: View, verbs: AllVerbs, filters: DeadFilters, action: str) -> DeadJob:
    verb = verbs.replay_dead if action == "replay" else verbs.purge_dead
    steps = verb(view.chosen, dry_run=True) if view.chosen else verb(dry_run=True, **filters)
    return await view.listing(steps)


@page.act("/dead/replay")
async def replay(view: View) -> Ask:
    filters, given = _filters(view)
    verbs = _verbs(view, "operate", filters.get("queue"))
    preview = None if view.form else await _preview(view, verbs, filters, "replay")

    async def do() -> Response:
        rate = view.form.get("rate")
        limit = number_field(view.form, "limit")
        if view.chosen:
            job: DeadJob = await view.drive(verbs.replay_dead(view.chosen, rate=_rate(rate), limit=limit))
        else:
            job = await view.drive(verbs.replay_dead(rate=_rate(rate), limit=limit, **filters))
        await charge_moved(view.request, view.caller, job.count)
        if job.status == "running":
            return view.done(f"Replay {job.id} has begun: {plural(job.count, 'message')} so far.", "dead")
        return view.done(f"Replayed {plural(job.count, 'message')}. You can undo it for a minute.", "dead")

    return Ask(
        title="Replay dead letters", text="They run again with the settings of today, from attempt 0.",
        button="Replay" if preview is None else f"Replay {_count(preview)}", do=do, template="dead_ask.html",
        values={"preview": preview, "words": _words(given, view.chosen), "rated": True}, back="dead",
    )  # fmt: skip


def _rate(text: str | None) -> str | float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _count(preview: DeadJob) -> str:
    return f"{preview.count:,}" if preview.complete else f"{preview.count:,} or more"


@page.act("/dead/purge")
async def purge(view: View) -> Ask:
    filters, given = _filters(view)
    verbs = _verbs(view, "operate", filters.get("queue"))
    preview = None if view.form else await _preview(view, verbs, filters, "purge")

    async def do() -> Response:
        if view.form.get("sure") != "yes":
            raise InvalidMessage("tick the box to remove them for good", field="sure")
        gone, cursor = 0, None
        for _ in range(_STEPS):
            steps = verbs.purge_dead(view.chosen) if view.chosen else verbs.purge_dead(after=cursor, **filters)
            job: DeadJob = await view.drive(steps)
            gone, cursor = gone + job.count, job.cursor
            if cursor is None:
                break
        await charge_moved(view.request, view.caller, gone)
        rest = "" if cursor is None else " There are more: purge again."
        return view.done(f"Removed {plural(gone, 'dead letter')}.{rest}", "dead")

    return Ask(
        title="Purge dead letters", text="They are removed for good. This cannot be undone.", danger=True,
        button="Purge" if preview is None else f"Purge {_count(preview)}", do=do, template="dead_ask.html",
        values={"preview": preview, "words": _words(given, view.chosen), "rated": False}, back="dead",
    )  # fmt: skip


@page.act("/dead/replays/{id}/cancel")
async def cancel(view: View, id: str) -> Ask:
    job: DeadJob = await view.drive(_verbs(view, "operate").get_dead_replay(id))

    async def do() -> Response:
        done: DeadJob = await view.drive(_verbs(view, "operate").cancel_dead_replay(id))
        return view.done(f"Stopped after {plural(done.count, 'message')}.", "dead")

    return Ask(
        title="Stop this replay?", text=f"{plural(job.count, 'message')} were replayed so far; they stay so.",
        button="Stop", do=do, back="dead",
    )  # fmt: skip


@page.act("/dead/replays/{id}/undo")
async def undo(view: View, id: str) -> Ask:
    job: DeadJob = await view.drive(_verbs(view, "operate").get_dead_replay(id))

    async def do() -> Response:
        done: DeadJob = await view.drive(_verbs(view, "operate").undo_dead_replay(id))
        return view.done(f"{plural(done.undone, 'message')} dead again; what was delivered stays.", "dead")

    return Ask(
        title="Undo this replay?", button="Undo", do=do, back="dead",
        text=f"Of {plural(job.count, 'replayed message')}, those that nobody has got yet become dead again.",
    )  # fmt: skip
