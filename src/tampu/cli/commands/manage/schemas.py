"""`tampu schema`: put, list, show and delete JSON Schemas."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer

import tampu
from tampu.cli.app import command, group, option
from tampu.cli.definitions import Name, add_commands, read_document
from tampu.cli.session import Session
from tampu.model.similar import did_you_mean

_PANEL = "Policies"
schema = group("schema", _PANEL, "JSON Schemas that payloads must match")


@command("put", _PANEL, of=schema)
def put(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the schema")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="The JSON Schema; - is standard input")],
    queue: Annotated[
        list[str] | None, option("--queue", "Pattern of queues; again for more", metavar="PATTERN")
    ] = None,
    type: Annotated[list[str] | None, option("--type", "Pattern of types; again for more", metavar="PATTERN")] = None,
    compatibility: Annotated[
        str, option("--compatibility", "What a change must be: none, backward, forward or full")
    ] = "none",
) -> None:
    """Create a schema, or make a new version of it."""
    document = read_document(file, "schema")

    def act(store: tampu.Store) -> tampu.Schema:
        return store.schemas.put(name, document, queues=queue, types=type, compatibility=compatibility)  # type: ignore[arg-type]  # checked there

    with session.open_or_create(act) as store:
        made = act(store)
    session.out.answer(msgspec.to_builtins(made), f"{made.name} is version {made.version}", "green")


@command("from-task", _PANEL, of=schema)
def from_task(
    session: Session,
    task: Annotated[str, typer.Argument(metavar="MODULE:APP:TASK", help="The task, such as shop.tasks:app:send")],
) -> None:
    """Print the JSON Schema of a task's payload, made from the annotations of its function."""
    from tampu.worker.process import run

    module, _, rest = task.partition(":")
    name, _, wanted = rest.partition(":")
    tasks = run.load(f"{module}:{name}" if name else module).tasks
    if not wanted and len(tasks) == 1:
        (wanted,) = tasks
    if wanted not in tasks:
        like = did_you_mean(wanted, tasks)
        hint = f"tasks: {', '.join(tasks)}"
        raise tampu.NotFound(f"no task {wanted} in {module}:{name}{like}", field="task", hint=hint)
    document = tasks[wanted].arguments.schema()
    if session.json:
        session.out.document(document)
    else:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")


@command("example", _PANEL, of=schema)
def example(session: Session, name: Name) -> None:
    """Print a small value that matches a schema."""
    with session.open() as store:
        found = store.schemas.example(name)
    session.out.document(found)


add_commands(
    schema, _PANEL, "schema", "schemas", ["queues", "types", "compatibility"],
    lambda one: [", ".join(one.queues) or "*", ", ".join(one.types) or "*", one.compatibility],
)  # fmt: skip
