"""`replay --from-lake`: shows what would come back, asks, and publishes it with a bar and a pace."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import typer

import tampu
from tampu.cli import exits, output, prompts
from tampu.cli.lake import lake_option
from tampu.cli.output import text, word
from tampu.cli.session import Session

_SHOWN = 10


class Asked(NamedTuple):
    """The options that say what is to be replayed, and how."""

    queue: str | None
    ids: list[str] | None
    where: list[str] | None
    everything: bool
    to: str | None
    limit: int | None
    rate: str | None
    replay_id: str | None
    options: list[str] | None


def run(session: Session, lake: str | None, asked: Asked, *, dry_run: bool, yes: bool) -> None:
    if not (asked.queue or asked.ids or asked.where or asked.everything):
        raise tampu.InvalidMessage(
            "say which messages", field="where", hint="--where \"state = 'dead'\", a QUEUE, or --all; see --dry-run"
        )
    rate = _rate(asked.rate)
    found = lake_option.to_ask(session, lake, asked.options)
    from tampu.lake.query import checked_condition
    from tampu.lake.replay import Replay

    where = " AND ".join(f"({checked_condition(condition)}\n)" for condition in asked.where) if asked.where else None
    with session.open() as store:
        replay = Replay(
            store, found, where=where, queue=asked.queue, ids=asked.ids, to=asked.to, limit=asked.limit,
            replay_id=asked.replay_id,
        )  # fmt: skip
        seen = replay.preview()
        if not session.json:
            _show(session, seen, asked.to, rate)
        if dry_run:
            if session.json:
                session.out.document({"dry_run": True, **_document(seen)})
            return
        if seen.messages and not yes:
            prompts.confirm(f"publish {seen.messages:,} messages again?", "this publishes messages again")
        session.out.note(f"replay id {seen.replay_id}: if this is stopped, run it again with --replay-id to go on")
        with output.progress("replaying", seen.messages + seen.missing) as advance:
            done = replay.run(rate=rate, advance=advance)
    _tell(session, done)


def _rate(given: str | None) -> float | None:
    if given is None:
        return None
    number = given.strip().lower().removesuffix("/s")
    try:
        rate = float(number)
    except ValueError:
        rate = math.nan
    if not 0 < rate <= 1e9:
        raise tampu.InvalidMessage(f"{given!r:.40} is not a rate", field="rate", hint="messages a second: 50 or 50/s")
    return rate


def _show(session: Session, seen: Any, to: str | None, rate: float | None) -> None:
    out = session.out
    into = f" into {to}" if to else ""
    out.say(f"{seen.messages:,} messages would be published again{into}", "bold")
    for queue, count in list(seen.queues.items())[:_SHOWN]:
        out.say(f"  {count:,} of {queue}")
    if len(seen.queues) > _SHOWN:
        out.say(f"  and {len(seen.queues) - _SHOWN:,} queues more")
    if seen.oldest is not None:
        out.say(f"  ended from {output.clock(seen.oldest)} to {output.clock(seen.newest)}")
    if seen.missing:
        out.say(f"  {seen.missing:,} are left out: their payload is not in the lake", "yellow")
    if seen.earlier:
        out.say(f"  {seen.earlier:,} were done with by earlier runs of {seen.replay_id}")
    if rate and seen.messages:
        out.say(f"  in about {output.span(seen.messages / rate)}")
    if seen.sample:
        rows = [
            [
                text(row["id"]), word(str(row["state"])), text(row["queue"]), text(row["type"] or ""),
                text(output.ago(row["ended_at"])), text(" ".join((row["last_error"] or "").split())[:300]),
            ]
            for row in seen.sample
        ]  # fmt: skip
        names = ("id", "state", "queue", "type", "ended", "error")
        out.show(output.table(names, rows, fold=("queue", "type", "error")))


def _document(seen: Any) -> dict[str, Any]:
    return {name: getattr(seen, name) for name in type(seen).__struct_fields__}


def _tell(session: Session, done: Any) -> None:
    if session.json:
        session.out.document({"dry_run": False, **_document(done)})
    else:
        there = f", {done.already:,} were there" if done.already else ""
        session.out.say(f"{done.new:,} messages published{there}; replay id {done.replay_id}")
        left_out = done.missing + done.refused
        if left_out:
            session.out.say(f"{left_out:,} left out", "yellow")
        for id, why in done.problems[:_SHOWN]:
            session.out.say(f"  {id}  {why}", "yellow")
    if done.refused:
        raise typer.Exit(exits.FAILED)
