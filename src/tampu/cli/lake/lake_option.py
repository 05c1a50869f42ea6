"""Opens the lake of a command, to write or to query it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import tampu
from tampu.cli import parse
from tampu.cli.app import option
from tampu.cli.session import Session
from tampu.model.extras import install

if TYPE_CHECKING:
    from tampu.lake import query, storage

PANEL = "Lake"
LakePath = Annotated[
    str | None, option("--lake", "The lake (TAMPU_LAKE, or next to the store: jobs.db has jobs.lake)", metavar="PATH")
]
LakeOptions = Annotated[
    list[str] | None, option("--option", "Storage option: AWS_REGION=eu-west-1; repeatable", metavar="NAME=VALUE")
]


def to_write(session: Session, path: str | None, options: list[str] | None, format: str | None = None) -> storage.Lake:
    with _needs_extra():
        from tampu.lake.storage import Lake
    given = _parse_options(options)
    if format is not None:
        given["spark.format"] = format
    return Lake(_path(session, path), given)


def to_query(session: Session, path: str | None, options: list[str] | None) -> query.Lake:
    with _needs_extra():
        from tampu.lake.query import Lake
    return Lake(_path(session, path), storage_options=_parse_options(options))


def _parse_options(options: list[str] | None) -> dict[str, str]:
    return parse.pairs(options, "option", tampu.InvalidConfig) or {}


def _path(session: Session, path: str | None) -> str:
    """The given lake, or the one that belongs to the store."""
    from tampu.lake.storage.urls import default_lake

    return path or default_lake(session.store)


@contextlib.contextmanager
def _needs_extra() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise tampu.Unavailable(f"{error.name} is not installed", hint=f"the lake needs: {install('spark')}") from None
