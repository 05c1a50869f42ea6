"""Opens the store of a url."""

from __future__ import annotations

import importlib
import os
import urllib.parse
from pathlib import Path

from tampu.engines.port import Engine
from tampu.model.errors import InvalidConfig, NotFound
from tampu.model.extras import install
from tampu.store_factory import make_engine
from tampu.stores.port import ArrowStore

_STORES = {
    "SqliteEngine": ("sql.sqlite", "SqliteStore"),
    "PostgresEngine": ("sql.postgres", "PostgresStore"),
    "MariaEngine": ("sql.mariadb", "MariaStore"),
    "RedisEngine": ("redis.store", "RedisStore"),
}
"""Module and class of the store over each engine."""


def open_store(url: str) -> ArrowStore:
    """Open a store. ``env:NAME`` reads the url from this process's environment, so that no plan or log contains it."""
    url = _resolved(url)
    if not url.startswith(("http://", "https://")):
        return store_of(make_engine(url))
    try:
        from tampu.stores.http import HttpStore
    except ImportError as error:
        raise InvalidConfig(f"a server needs {error.name}", field="url", hint=install("client")) from error
    return HttpStore(url, os.environ.get("TAMPU_TOKEN"))


def open_existing(url: str) -> ArrowStore:
    """As `open_store`, but refuses a store that does not exist instead of creating it. For planning reads."""
    url = _resolved(url)
    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "sqlite":
        path = Path(urllib.parse.unquote(rest.partition("?")[0][1:]) if separator else url)
        if not path.exists():
            raise NotFound(
                f"there is no file {path}",
                field="url",
                hint="use an absolute path, because driver and executors have different working folders; publishing "
                "creates a new file",
            )
    elif scheme in ("postgresql", "postgres"):
        from tampu.stores.sql.postgres import check_there

        check_there(url)
    return open_store(url)


def _resolved(url: str) -> str:
    if url.startswith("env:"):
        name = url.removeprefix("env:")
        url = os.environ.get(name, "")
        if not url:
            raise InvalidConfig(f"the environment has no {name}", field="url", hint="set it on driver and executors")
    if url.startswith("memory:"):
        raise InvalidConfig("Spark cannot read a store in memory", field="url", hint="use a file: jobs.db")
    return url


def store_of(engine: Engine) -> ArrowStore:
    """The store over an open engine; it closes the engine. Imports only the module of that engine."""
    found = _STORES.get(type(engine).__name__)
    if found is not None:
        module, name = found
        made: ArrowStore = getattr(importlib.import_module(f"tampu.stores.{module}"), name)(engine)
        return made
    engine.close()
    raise InvalidConfig(
        "Spark cannot read this kind of store",
        field="url",
        hint="a file (jobs.db), postgresql://…, mariadb://…, redis://… or http://…",
    )
