"""`remove`: a queue for good, with its settings and its messages."""

from __future__ import annotations

from typing import Annotated

import typer

import tampu
from tampu.cli import prompts
from tampu.cli.app import DryRun, QueueName, command
from tampu.cli.session import Session


@command("remove", "Steer")
def remove(
    session: Session,
    queue: QueueName,
    force: Annotated[bool, typer.Option("--force", help="Also when messages still wait in it")] = False,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
) -> None:
    """Remove a queue for good, with its settings and its messages. Asks before.

    Refused while messages are leased and, without --force, while messages wait. Publishing to it makes a new queue.
    """
    with session.open() as store:
        stats: tampu.Stats = store.stats(queue)
        total = sum(stats.counts.values())
        if not dry_run:
            if not yes and (force or not stats.depth):  # else it is refused anyway
                prompts.confirm(
                    f"remove {queue}, its settings and {_told(stats)}, for good?",
                    f"this removes {queue}, its settings and {_told(stats)}",
                )
            total = store.queues.remove(queue, force=force)
    if session.json:
        session.out.document({"queue": queue, "dry_run": dry_run, "removed": 0 if dry_run else total,
                              "would_remove": total if dry_run else 0})  # fmt: skip
    else:
        verb = "would be removed" if dry_run else "removed"
        session.out.say(f"{queue} {verb}, with {_told(stats) if dry_run else f'{total:,} messages'}")


def _told(stats: tampu.Stats) -> str:
    """How many messages there are, and in which states."""
    parts = [f"{count:,} {state}" for state, count in stats.counts.items() if count]
    return f"{sum(stats.counts.values()):,} messages" + (f" ({', '.join(parts)})" if parts else "")
