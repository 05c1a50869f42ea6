"""`tampu review`: list, show, claim, decide, comment and reassign messages that wait for a person's decision."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

import tampu
from tampu.cli import output, parse
from tampu.cli.app import command, group, option
from tampu.cli.commands.manage.patterns import sections_of
from tampu.cli.commands.work import publish
from tampu.cli.session import Session

_PANEL = "Policies"
review = group("review", _PANEL, "Messages that wait for a person's decision")
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the message")]
By = Annotated[str | None, option("--by", "Who decides; without it, you", metavar="PERSON")]


@command("list", _PANEL, of=review)
def list_all(
    session: Session,
    role: Annotated[str | None, option("--role", "Those that this role may decide", metavar="ROLE")] = None,
    assignee: Annotated[str | None, option("--assignee", "Those of this person", metavar="PERSON")] = None,
    queue: Annotated[str | None, option("--queue", "Of this queue", metavar="QUEUE")] = None,
    pattern: Annotated[str | None, option("--pattern", "By this pattern", metavar="NAME")] = None,
    limit: Annotated[int, option("--limit", "At most so many", metavar="N")] = 100,
) -> None:
    """List open reviews: queue by queue, in each the oldest message first."""
    found: list[tampu.ReviewRecord] = []
    with session.open() as store:
        after = None
        while len(found) < limit:
            most = min(limit - len(found), 1000)
            page = store.reviews.list(
                role=role, assignee=assignee, queue=queue, pattern=pattern, after=after, limit=most
            )
            found += page
            after = page.cursor
            if after is None:
                break
    rows = (
        [
            one.id, one.queue, one.pattern or "(inline)", ", ".join(one.roles), one.assignee or "",
            output.ago(one.opened_at), output.ago(one.deadline_at),
        ]
        for one in found
    )  # fmt: skip
    document = {"reviews": [msgspec.to_builtins(one) for one in found]}
    session.out.rows(document, ["message", "queue", "pattern", "roles", "assignee", "opened", "deadline"], rows)


@command("show", _PANEL, of=review)
def show(session: Session, id: Id) -> None:
    """Show a review: what there is to see, the options, the form, comments and votes."""
    with session.open() as store:
        found = store.reviews.get(id)
    if session.json:
        session.out.document(msgspec.to_builtins(found))
        return
    lines = [f"{found.queue} {found.id}: {found.state}", *sections_of(found.sections)]
    lines.append("options: " + ", ".join(f"{one.name} ({one.outcome})" for one in found.options))
    for name, field in found.fields.items():
        lines.append(f"field {name}: {field.type}" + (", required" if field.required else ""))
    lines += [f"{one.by} at {one.at:%Y-%m-%d %H:%M}: {one.text}" for one in found.comments]
    lines += [f"{one.by} at {one.at:%Y-%m-%d %H:%M} has decided: {one.option}" for one in found.votes]
    if found.assignee:
        lines.append(f"assignee: {found.assignee}")
    session.out.show(output.text("\n".join(lines)))


@command("claim", _PANEL, of=review)
def claim(session: Session, id: Id, by: By = None) -> None:
    """Work on a review: nobody else can decide, until it is reassigned."""
    with session.open() as store:
        _answer(session, store.reviews.claim(id, by=by), "claimed")


@command("decide", _PANEL, of=review)
def decide(
    session: Session,
    id: Id,
    choice: Annotated[str, typer.Argument(metavar="OPTION", help="One of the options, such as approve")],
    by: By = None,
    reason: Annotated[str | None, option("--reason", "Why", metavar="TEXT")] = None,
    field: Annotated[
        list[str] | None, option("--field", "A value of the form; JSON, or a text", metavar="NAME=VALUE")
    ] = None,
    payload: Annotated[str | None, option("--payload", "Replace the payload, as JSON", metavar="JSON")] = None,
    role: Annotated[str | None, option("--role", "The role you act in", metavar="ROLE")] = None,
) -> None:
    """Decide: the message continues, or it is dead."""
    values = {name: _value(text) for name, text in (parse.pairs(field, "field") or {}).items()}
    edited = None
    if payload is not None:
        edited, _ = publish.read_payload(payload, None, text=False, content_type=None)
    with session.open() as store:
        made = store.reviews.decide(id, choice, by=by, reason=reason, fields=values, payload=edited, role=role)
    missing = made.approvals - len(made.votes)
    done = choice if made.state == "decided" else f"{choice}, {missing} more to approve"
    _answer(session, made, done)


@command("comment", _PANEL, of=review)
def comment(
    session: Session, id: Id, words: Annotated[str, typer.Argument(metavar="TEXT", help="The comment")], by: By = None
) -> None:
    """Add a comment."""
    with session.open() as store:
        _answer(session, store.reviews.comment(id, words, by=by), "commented")


@command("reassign", _PANEL, of=review)
def reassign(
    session: Session,
    id: Id,
    to: Annotated[str | None, typer.Argument(metavar="PERSON", help="Who decides; without it, nobody special")] = None,
    role: Annotated[list[str] | None, option("--role", "Roles that may decide", metavar="ROLE")] = None,
    by: By = None,
) -> None:
    """Let another person, or other roles, decide."""
    with session.open() as store:
        _answer(session, store.reviews.reassign(id, to, roles=role, by=by), "reassigned")


def _answer(session: Session, made: tampu.ReviewRecord, done: str) -> None:
    session.out.answer(msgspec.to_builtins(made), f"{made.id}: {done}", "green")


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text
