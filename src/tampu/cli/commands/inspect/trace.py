"""`tampu trace`: the story of related messages, as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

import tampu
from tampu.cli import output
from tampu.cli.app import command, option
from tampu.cli.output import text, word
from tampu.cli.session import Session

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree


@command("trace", "Inspect")
def trace(
    session: Session,
    id: Annotated[str, typer.Argument(metavar="ID", help="Correlation id, or the id of a message")],
    limit: Annotated[int, option("--limit", "-n", "Maximum messages")] = 500,
) -> None:
    """Show what happened to the messages that share a correlation id: across queues, in order, with durations."""
    with session.open() as store:
        found = store.trace(id, limit=limit)
    if session.json:
        session.out.document(msgspec.to_builtins(found))
        return
    session.out.show(_tree(found))
    if not found.complete:
        session.out.note(f"only the first {len(found)} messages; more with --limit")


def _tree(found: tampu.Trace) -> Tree:
    from rich.tree import Tree

    took = "" if found.duration is None else f", {output.span(found.duration.total_seconds())}"
    title = f"  {len(found)} messages since {output.clock(found.started_at)}{took}"
    tree = Tree(text(found.correlation_id, "bold") + text(title, "dim"))
    branches: dict[str | None, Tree] = {}
    for message in found:
        branch = branches.get(message.cause, tree).add(_heading(found, message))
        branches[message.id] = branch
        for event in message.events[1:]:
            branch.add(_event(event))
    return tree


def _heading(found: tampu.Trace, m: tampu.TraceMessage) -> Text:
    since = output.span((m.created_at - found.started_at).total_seconds())
    took = "" if m.duration is None else f" in {output.span(m.duration.total_seconds())}"
    return text(m.queue, "bold") + text(f" {m.type} ") + word(m.state) + text(f"{took}  +{since}  {m.id}", "dim")


def _event(event: tampu.TraceEvent) -> Text:
    facts = [event.attempt and f"attempt {event.attempt}", event.worker and f"by {event.worker}", event.detail]
    more = ", ".join(fact for fact in facts if fact)
    return word(event.what) + text(f" after {output.span(event.after)}", "dim") + text(f"  {more}")
