"""`tampu flow`: list, show, cancel and replay flows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

import tampu
from tampu.cli import output
from tampu.cli.app import command, group, option
from tampu.cli.output import text, word
from tampu.cli.session import Session

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

_PANEL = "Manage"
_ALONE = 10
"""So many members that are alike are shown one by one; more of them as one line."""
flow = group("flow", _PANEL, "Messages that wait for each other")
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the flow")]


@command("list", _PANEL, of=flow)
def list_all(
    session: Session,
    name: Annotated[str | None, option("--name", "Those with this name", metavar="NAME")] = None,
    status: Annotated[str | None, option("--status", "running, done, failed or cancelled", metavar="STATUS")] = None,
    limit: Annotated[int, option("--limit", "At most so many", metavar="N")] = 100,
) -> None:
    """List flows, the newest first."""
    with session.open() as store:
        page = store.flows.list(name=name, status=status, limit=limit)
    rows = (
        [one.id, one.name, one.status, str(one.total), _counts(one.counts), output.ago(one.created_at), one.by]
        for one in page.flows
    )
    document = {"flows": [msgspec.to_builtins(one) for one in page.flows], "cursor": page.cursor}
    session.out.rows(document, ["flow", "name", "status", "members", "states", "published", "by"], rows)


@command("show", _PANEL, of=flow)
def show(
    session: Session,
    id: Id,
    limit: Annotated[int, option("--limit", "At most so many members", metavar="N")] = 1000,
) -> None:
    """Draw a flow as a tree: each member below the last one that it waits for."""
    with session.open() as store:
        found = store.flows.get(id, limit=limit)
    if session.json:
        session.out.document(msgspec.to_builtins(found))
        return
    session.out.show(_tree(found))
    if len(found.members) < found.total:
        session.out.note(f"only the first {len(found.members)} of {found.total} members; more with --limit")


@command("cancel", _PANEL, of=flow)
def cancel(session: Session, id: Id) -> None:
    """Cancel all members that have not ended; workers of those that run are asked to stop."""
    with session.open() as store:
        found = store.flows.cancel(id)
    session.out.answer(msgspec.to_builtins(found), f"{found.id}: cancelled", "yellow")


@command("replay", _PANEL, of=flow)
def replay(
    session: Session,
    id: Id,
    everything: Annotated[bool, option("--all", "Publish all of it again, as a new flow")] = False,
) -> None:
    """Replay the dead members of a flow; those that wait for them go on then."""
    with session.open() as store:
        found = store.flows.replay(id, failed_only=not everything)
    if everything:
        session.out.answer({"id": found}, f"{found}: published", "green")
    else:
        session.out.answer({"count": found}, f"{id}: {found} replayed", "green")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))


def _tree(found: tampu.FlowRecord) -> Tree:
    from rich.tree import Tree

    took = found.ended_at and f" in {output.span((found.ended_at - found.created_at).total_seconds())}"
    title = f"  {found.status}{took or ''}, {found.total} members, published {output.clock(found.created_at)}"
    tree = Tree(text(f"{found.name} {found.id}", "bold") + text(title, "dim"))
    branches: dict[str, Tree] = {}
    for alike in _alike(found.members):
        parent = next((branches[id] for id in reversed(alike[0].after) if id in branches), tree)
        if len(alike) > _ALONE:
            branch = parent.add(_many(alike))
            branches.update((one.id, branch) for one in alike)
            continue
        for one in alike:
            branches[one.id] = parent.add(_one(one))
    return tree


def _alike(members: tuple[tampu.FlowMemberView, ...]) -> list[list[tampu.FlowMemberView]]:
    """Members in their order; those that wait for the same ones and do the same are together."""
    groups: dict[tuple[object, ...], list[tampu.FlowMemberView]] = {}
    for one in members:
        groups.setdefault((one.queue, one.type, one.parents, one.after, one.on_failure), []).append(one)
    return list(groups.values())


def _waits(one: tampu.FlowMemberView) -> str:
    many = f"  after {one.parents}" if one.parents > 1 else ""
    return many if one.on_failure == "fail" else f"{many}  on failure: {one.on_failure}"


def _one(one: tampu.FlowMemberView) -> Text:
    line = text(one.queue, "bold") + text(f" {one.type} ") + word(one.state) + text(f"{_waits(one)}  {one.id}", "dim")
    return line if one.error is None else line + text(f"  {one.error.splitlines()[0][:200]}")


def _many(alike: list[tampu.FlowMemberView]) -> Text:
    states = _counts(dict(Counter(one.state for one in alike)))
    head = text(alike[0].queue, "bold") + text(f" {len(alike)} × {alike[0].type} ")  # noqa: RUF001 - the sign for times
    return head + text(states) + text(_waits(alike[0]), "dim")
