"""From a url to the store behind it."""

from __future__ import annotations

import os

from tampu.model.errors import InvalidConfig
from tampu.spark.stores.port import Store


def open_store(url: str) -> Store:
    """``env:NAME`` takes the url from the environment of the process that opens it, so that no plan or log holds it."""
    if url.startswith("env:"):
        name = url.removeprefix("env:")
        url = os.environ.get(name, "")
        if not url:
            raise InvalidConfig(f"the environment has no {name}", field="url", hint="set it on driver and executors")
    if url.startswith("memory:"):
        raise InvalidConfig("a store in memory can not be seen by Spark", field="url", hint="name a file: jobs.db")
    from tampu.spark.stores.sqlite import SqliteStore

    return SqliteStore(url)
