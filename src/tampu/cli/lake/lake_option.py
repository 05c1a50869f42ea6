"""The lake that a command is for: for those who keep it, and for those who only ask."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

import tampu
from tampu.cli import parse
from tampu.cli.session import Session

if TYPE_CHECKING:
    from tampu.lake import query, storage

PANEL = "Lake"
LakePath = Annotated[
    str | None,
    typer.Option("--lake", metavar="PATH", help="The lake (TAMPU_LAKE, or beside the file: jobs.db has jobs.lake)"),
]
LakeOptions = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="For the lake's storage: AWS_REGION=eu-west-1; repeatable"),
]
_FOR_SPARK = "spark."


def to_keep(session: Session, path: str | None, options: list[str] | None, format: str | None = None) -> storage.Lake:
    with _needing_the_extra():
        from tampu.lake.storage import Lake
    given = _given(options)
    if format is not None:
        given["spark.format"] = format
    return Lake(_place(session, path), given)


def to_ask(session: Session, path: str | None, options: list[str] | None) -> query.Lake:
    with _needing_the_extra():
        from tampu.lake.query import Lake
    given = {name: value for name, value in _given(options).items() if not name.startswith(_FOR_SPARK)}
    return Lake(_place(session, path), storage_options=given or None)


def _given(options: list[str] | None) -> dict[str, str]:
    return parse.pairs(options, "option", tampu.InvalidConfig) or {}


def _place(session: Session, path: str | None) -> str:
    """The one that was named, or that belongs to the store."""
    from tampu.lake.urls import default_lake

    return path or default_lake(session.store)


@contextlib.contextmanager
def _needing_the_extra() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise tampu.Unavailable(
            f"{error.name} is not installed", hint="pip install 'tampu[spark]', which brings what the lake needs"
        ) from None
