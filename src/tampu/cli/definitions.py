"""Commands that every kind of definition has: list, show and delete. Each kind adds its own ``put``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

import tampu
from tampu.cli import output
from tampu.cli.app import command
from tampu.cli.session import Session
from tampu.model.extras import install

Row = Callable[[Any], Sequence[Any]]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name")]
_MOST_BYTES = 1 << 20


def add_commands(group: Any, panel: str, word: str, plural: str, columns: Sequence[str], row: Row) -> None:
    """``tampu WORD list``, ``show`` and ``delete``. ``row`` has the cells of a list's row, besides name and version."""

    @command("list", panel, of=group, help=f"List all {plural}.")
    def list_all(session: Session) -> None:
        with session.open() as store:
            found = getattr(store, plural).list()
        rows = ([one.name, str(one.version), *row(one)] for one in found)
        document = {plural: [msgspec.to_builtins(one) for one in found]}
        session.out.rows(document, [word, "version", *columns], rows, right=["version"])

    @command("show", panel, of=group, help=f"Show one {word}.")
    def show(session: Session, name: Name) -> None:
        with session.open() as store:
            found = getattr(store, plural).get(name)
        print_one(session, found)

    @command("delete", panel, of=group, help=f"Delete a {word}.")
    def delete(session: Session, name: Name) -> None:
        with session.open() as store:
            if not getattr(store, plural).delete(name):
                raise tampu.NotFound(f"no {word} {name}", field="name", hint=f"see tampu {word} list")
        session.out.answer({"name": name, "deleted": True}, f"{name} deleted")


def print_one(session: Session, definition: Any) -> None:
    document = msgspec.to_builtins(definition)
    if session.json:
        session.out.document(document)
    else:
        session.out.show(output.pretty(document))


def read_document(file: str, field: str) -> Any:
    """A JSON document from a file; ``-`` is standard input. YAML is taken too, if PyYAML is installed."""
    try:
        raw = sys.stdin.buffer.read(_MOST_BYTES + 1) if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise tampu.InvalidConfig(f"cannot read {file}: {error.strerror}", field=field) from None
    if len(raw) > _MOST_BYTES:
        raise tampu.InvalidConfig(f"{file} has more than {_MOST_BYTES:,} bytes", field=field)
    try:
        return msgspec.json.decode(raw)
    except msgspec.MsgspecError as error:
        if file.endswith((".yaml", ".yml")):
            return _yaml(raw, file, field)
        raise tampu.InvalidConfig(f"{file} is not JSON: {error}", field=field) from None


def _yaml(raw: bytes, file: str, field: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]  # it has no types
    except ImportError:
        raise tampu.InvalidConfig("YAML files need PyYAML", hint=install("policies")) from None
    try:
        return yaml.safe_load(raw)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise tampu.InvalidConfig(f"{file} is not YAML: {' '.join(str(error).split()):.300}", field=field) from None
