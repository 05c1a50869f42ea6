"""`tampu dead`: list, group, replay and purge dead letters of all queues; undo a replay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer

import tampu
from tampu.cli import documents, output, parse
from tampu.cli.app import command, group, option
from tampu.cli.output import text
from tampu.cli.session import Session

_PANEL = "Manage"
dead = group("dead", _PANEL, "Dead letters of all queues")
Queue = Annotated[str | None, option("--queue", "A queue, a scope such as shop.*, or *", metavar="QUEUE")]
Reason = Annotated[str | None, option("--reason", "Only those that died for this reason")]
Type = Annotated[str | None, option("--type", "Only messages of this type")]
Error = Annotated[str | None, option("--error", "Only those whose error has this text", metavar="TEXT")]
Fingerprint = Annotated[str | None, option("--fingerprint", "Only this group of errors; see tampu dead groups")]
Since = Annotated[str | None, option("--since", "Only those that died within this time: 30m, 7d", metavar="TIME")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Messages, in place of filters")]
DryRun = Annotated[bool, option("--dry-run", "Only say how many there are, and where")]
ReplayId = Annotated[str, typer.Argument(metavar="REPLAY", help="The id that tampu dead replay has shown")]


def _filters(
    queue: str | None,
    reason: str | None,
    type: str | None,
    error: str | None,
    fingerprint: str | None,
    since: str | None,
) -> dict[str, Any]:
    begin = None if since is None else datetime.now(UTC) - timedelta(seconds=parse.duration(since, "since"))
    given = {
        "queue": queue, "reason": reason, "type": type, "error": error, "fingerprint": fingerprint, "since": begin,
    }  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}


@command("list", _PANEL, of=dead)
def list_dead(
    session: Session,
    queue: Queue = None,
    reason: Reason = None,
    type: Type = None,
    error: Error = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    limit: Annotated[int, option("--limit", "At most this many")] = 100,
) -> None:
    """List dead letters over all queues: queue by queue, in each the oldest first."""
    filters = _filters(queue, reason, type, error, fingerprint, since)
    found: list[tampu.Message] = []
    with session.open() as store:
        after = None
        while len(found) < limit:
            page = store.dead.list(after=after, limit=min(limit - len(found), 1000), **filters)
            found += page
            after = page.cursor
            if after is None:
                break
    rows = (
        [text(m.queue, "bold"), m.id, m.type or "", m.reason or "", output.ago(m.ended_at), m.last_error or ""]
        for m in found
    )
    document = {"messages": [documents.message(m) for m in found]}
    session.out.rows(document, ["queue", "id", "type", "reason", "died", "error"], rows, fold=["error"])


@command("groups", _PANEL, of=dead)
def groups(
    session: Session,
    queue: Queue = None,
    reason: Reason = None,
    type: Type = None,
    error: Error = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
) -> None:
    """Count dead letters by error: errors that differ only in numbers, ids and quoted values are one group."""
    filters = _filters(queue, reason, type, error, fingerprint, since)
    with session.open() as store:
        found = store.dead.groups(**filters)
    rows = (
        [
            one.fingerprint, f"{one.count:,}", ", ".join(sorted(one.queues)), output.ago(one.first_at),
            output.ago(one.last_at), one.error,
        ]
        for one in found
    )  # fmt: skip
    names = ["fingerprint", "count", "queues", "first", "last", "error"]
    session.out.rows(msgspec.to_builtins(found), names, rows, fold=["error"])


@command("replay", _PANEL, of=dead)
def replay(
    session: Session,
    ids: Ids = None,
    queue: Queue = None,
    reason: Reason = None,
    type: Type = None,
    error: Error = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    rate: Annotated[str | None, option("--rate", "Such as 50/s, 10/m; else as fast as the store can")] = None,
    limit: Annotated[int | None, option("--limit", "At most this many")] = None,
    dry_run: DryRun = False,
) -> None:
    """Replay dead letters of any queue, with the settings of today. With --rate, maintenance replays them in turn."""
    filters = _filters(queue, reason, type, error, fingerprint, since)
    with session.open() as store:
        _show(session, store.dead.replay(ids or None, rate=rate, limit=limit, dry_run=dry_run, **filters))


@command("replays", _PANEL, of=dead)
def replays(session: Session) -> None:
    """List the replays that run, or ended within a day."""
    with session.open() as store:
        found = store.dead.replays()
    rows = (
        [one.id or "", one.status, f"{one.count:,}", f"{one.undone:,}", one.by or "", output.ago(one.created_at)]
        for one in found
    )
    document = {"replays": [msgspec.to_builtins(one) for one in found]}
    session.out.rows(document, ["replay", "status", "replayed", "undone", "by", "begun"], rows)


@command("cancel", _PANEL, of=dead)
def cancel(session: Session, id: ReplayId) -> None:
    """Stop a replay. What was replayed stays so."""
    with session.open() as store:
        _show(session, store.dead.cancel(id))


@command("undo", _PANEL, of=dead)
def undo(session: Session, id: ReplayId) -> None:
    """Stop a replay, and make dead again what it replayed within the last minute and nobody has got since."""
    with session.open() as store:
        _show(session, store.dead.undo(id))


@command("purge", _PANEL, of=dead)
def purge(
    session: Session,
    ids: Ids = None,
    queue: Queue = None,
    reason: Reason = None,
    type: Type = None,
    error: Error = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    dry_run: DryRun = False,
) -> None:
    """Remove dead letters of any queue for good."""
    filters = _filters(queue, reason, type, error, fingerprint, since)
    total: tampu.DeadJob | None = None
    with session.open() as store:
        after = None
        while total is None or after is not None:
            part = store.dead.purge(ids or None, dry_run=dry_run, after=after, **filters)
            total = part if total is None else _sum(total, part)
            after = part.cursor
    _show(session, total)


def _sum(one: tampu.DeadJob, two: tampu.DeadJob) -> tampu.DeadJob:
    queues = {name: one.queues.get(name, 0) + two.queues.get(name, 0) for name in one.queues | two.queues}
    return msgspec.structs.replace(two, count=one.count + two.count, queues=queues, sample=one.sample)


def _show(session: Session, job: tampu.DeadJob) -> None:
    done = {"replay": "replayed", "purge": "removed"}[job.action]
    words = f"would be {done}" if job.status == "preview" else done
    lines = [f"{job.count:,} messages {words}" + (f", {job.undone:,} taken back" if job.undone else "")]
    lines += [f"  {queue}: {count:,}" for queue, count in sorted(job.queues.items())]
    if job.id is not None:
        lines.append(f"replay {job.id} is {job.status}" + (f", at {job.rate:g} a second" if job.rate else ""))
    if not job.complete:
        lines.append("there may be more: only the first 10,000 dead letters were looked at")
    session.out.answer(msgspec.to_builtins(job), "\n".join(lines), "green")
