"""Queues as DataFrames: ``format("tampu")`` for Spark, and what a Spark program needs beside it.

import tampu.spark
spark = tampu.spark.session()
spark.read.format("tampu").option("url", "jobs.db").option("queue", "emails").load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tampu.spark.queue.settle import settle
    from tampu.spark.runtime.sessions import register, session

__all__ = ["register", "session", "settle"]

# A module must not have the name of what it gives: once imported, it would stand in its place.
_HOMES = {"register": "runtime.sessions", "session": "runtime.sessions", "settle": "queue.settle"}


def __getattr__(name: str) -> Any:
    """Spark is imported when it is first needed: it takes a second, and workers import this package too."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
