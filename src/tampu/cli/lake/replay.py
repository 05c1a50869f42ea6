"""`replay --from-lake`: shows what would be published, asks, and publishes it with a progress bar and a rate limit."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import msgspec
import typer

import tampu
from tampu.cli import exits, output, streams
from tampu.cli.lake import lake_option
from tampu.cli.output import word
from tampu.cli.session import Session

_SHOWN = 10


class ReplayOptions(NamedTuple):
    """The options of `replay --from-lake`."""

    queue: str | None
    ids: list[str] | None
    where: list[str] | None
    everything: bool
    to: str | None
    limit: int | None
    rate: str | None
    replay_id: str | None
    options: list[str] | None


def run(session: Session, lake: str | None, options: ReplayOptions, *, dry_run: bool, yes: bool) -> None:
    if not (options.queue or options.ids or options.where or options.everything):
        raise tampu.InvalidMessage(
            "choose the messages", field="where", hint="--where \"state = 'dead'\", a QUEUE, or --all; try --dry-run"
        )
    rate = _rate(options.rate)
    found = lake_option.to_query(session, lake, options.options)
    from tampu.lake.query import checked_condition
    from tampu.lake.replay import Replay

    where = " AND ".join(f"({checked_condition(text)}\n)" for text in options.where) if options.where else None
    with session.open() as store:
        replay = Replay(
            store, found, where=where, queue=options.queue, ids=options.ids, to=options.to, limit=options.limit,
            replay_id=options.replay_id,
        )  # fmt: skip
        preview = replay.preview()
        if not session.json:
            _show(session, preview, options.to, rate)
        if dry_run:
            if session.json:
                session.out.document({"dry_run": True, **msgspec.structs.asdict(preview)})
            return
        if preview.messages and not yes:
            streams.confirm(f"publish {preview.messages:,} messages again?", "this publishes messages again")
        session.out.note(f"replay id {preview.replay_id}: to continue after a stop, run it again with this --replay-id")
        with output.progress("replaying", preview.messages + preview.missing) as advance:
            done = replay.run(rate=rate, advance=advance)
    _print(session, done)


def _rate(given: str | None) -> float | None:
    if given is None:
        return None
    number = given.strip().lower().removesuffix("/s")
    try:
        rate = float(number)
    except ValueError:
        rate = math.nan
    if not 0 < rate <= 1e9:
        raise tampu.InvalidMessage(f"{given!r:.40} is not a rate", field="rate", hint="messages per second: 50 or 50/s")
    return rate


def _show(session: Session, preview: Any, to: str | None, rate: float | None) -> None:
    out = session.out
    into = f" into {to}" if to else ""
    out.line(f"{preview.messages:,} messages would be published again{into}", "bold")
    for queue, count in list(preview.queues.items())[:_SHOWN]:
        out.line(f"  {count:,} of {queue}")
    if len(preview.queues) > _SHOWN:
        out.line(f"  and {len(preview.queues) - _SHOWN:,} more queues")
    if preview.oldest is not None:
        out.line(f"  ended from {output.clock(preview.oldest)} to {output.clock(preview.newest)}")
    if preview.missing:
        out.line(f"  {preview.missing:,} are skipped: their payload is not in the lake", "yellow")
    if preview.earlier:
        out.line(f"  {preview.earlier:,} were handled by earlier runs of {preview.replay_id}")
    if rate and preview.messages:
        out.line(f"  in about {output.span(preview.messages / rate)}")
    if preview.sample:
        rows = [
            [
                row["id"], word(str(row["state"])), row["queue"], row["type"], output.ago(row["ended_at"]),
                " ".join((row["last_error"] or "").split())[:300],
            ]
            for row in preview.sample
        ]  # fmt: skip
        names = ("id", "state", "queue", "type", "ended", "error")
        out.show(output.table(names, rows, fold=("queue", "type", "error")))


def _print(session: Session, done: Any) -> None:
    if session.json:
        session.out.document({"dry_run": False, **msgspec.structs.asdict(done)})
    else:
        existing = f", {done.already:,} existed already" if done.already else ""
        session.out.line(f"{done.new:,} messages published{existing}; replay id {done.replay_id}")
        skipped = done.missing + done.refused
        if skipped:
            session.out.line(f"{skipped:,} skipped", "yellow")
        for id, why in done.problems[:_SHOWN]:
            session.out.line(f"  {id}  {why}", "yellow")
    if done.refused:
        raise typer.Exit(exits.FAILED)
