"""`tampu pattern`: put, list, show, delete and preview what reviewers see and decide."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

import tampu
from tampu.cli import output
from tampu.cli.app import command, group
from tampu.cli.commands.work import publish
from tampu.cli.definitions import Name, add_commands, read_document
from tampu.cli.session import Session

_PANEL = "Policies"
pattern = group("pattern", _PANEL, "What reviewers see and decide")


@command("put", _PANEL, of=pattern)
def put(
    session: Session,
    name: Name,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The pattern as JSON or YAML; - is standard input")],
) -> None:
    """Create a pattern, or change the one with this name.

    The file has the fields of `store.patterns.put`: context, options, fields, roles, deadline and so on.
    """
    document = read_document(file, "pattern")
    if not isinstance(document, dict):
        raise tampu.InvalidConfig("a pattern is an object with context and options", field="pattern")
    fields: dict[str, Any] = {key: value for key, value in document.items() if key not in ("name", "version")}

    def act(store: tampu.Store) -> tampu.ReviewPattern:
        try:
            return store.patterns.put(name, **fields)
        except TypeError as error:
            raise tampu.InvalidConfig(f"patterns have no such field: {error}", field="pattern") from None

    with session.open_or_create(act) as store:
        made = act(store)
    session.out.answer(msgspec.to_builtins(made), f"{made.name} is version {made.version}", "green")


@command("preview", _PANEL, of=pattern)
def preview(session: Session, name: Name, payload: publish.Payload = None) -> None:
    """Show what a reviewer would see of a message with this payload. Nothing is stored."""
    value = None
    if payload is not None:
        value, _ = publish.read_payload(payload, None, text=False, content_type=None)
    with session.open() as store:
        found = store.reviews.preview(name, value)
    if session.json:
        session.out.document(msgspec.to_builtins(found))
        return
    session.out.show(output.text("\n\n".join(sections_of(found.sections)) or "(nothing to see)"))


def sections_of(sections: tuple[Any, ...]) -> list[str]:
    """The sections as text, each under its title."""
    return [f"{one.title}\n{one.text}" if one.title else one.text for one in sections]


add_commands(
    pattern, _PANEL, "pattern", "patterns", ["options", "roles", "deadline"],
    lambda one: [
        ", ".join(option.name for option in one.choices), ", ".join(one.roles),
        "" if one.deadline is None else str(one.deadline),
    ],
)  # fmt: skip
