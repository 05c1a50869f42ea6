"""`remove`: permanently removes a queue with its settings and messages."""

from __future__ import annotations

from typing import Annotated

import tampu
from tampu.cli import streams
from tampu.cli.app import DryRun, QueueName, command, option
from tampu.cli.session import Session


@command("remove", "Manage")
def remove(
    session: Session,
    queue: QueueName,
    force: Annotated[bool, option("--force", "Also if it has waiting messages")] = False,
    dry_run: DryRun = False,
    yes: Annotated[bool, option("--yes", "-y", "Do not ask")] = False,
) -> None:
    """Permanently remove a queue with its settings and messages. Asks first.

    Refused while messages are leased, and without --force while messages wait. Publishing to it creates a new queue.
    """
    with session.open() as store:
        stats: tampu.Stats = store.stats(queue)
        total = sum(stats.counts.values())
        if not dry_run:
            if not yes and (force or not stats.depth):  # otherwise it is refused anyway
                streams.confirm(
                    f"permanently remove {queue}, its settings and {_describe(stats)}?",
                    f"this removes {queue}, its settings and {_describe(stats)}",
                )
            total = store.queues.remove(queue, force=force)
    done = {"dry_run": dry_run, "removed": 0 if dry_run else total, "would_remove": total if dry_run else 0}
    verb = "would be removed" if dry_run else "removed"
    line = f"{queue} {verb}, with {_describe(stats) if dry_run else f'{total:,} messages'}"
    session.out.answer({"queue": queue, **done}, line)


def _describe(stats: tampu.Stats) -> str:
    """The number of messages, in total and by state."""
    parts = [f"{count:,} {state}" for state, count in stats.counts.items() if count]
    return f"{sum(stats.counts.values()):,} messages" + (f" ({', '.join(parts)})" if parts else "")
