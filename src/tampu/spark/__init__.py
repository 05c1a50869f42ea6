"""Queues as Spark DataFrames: ``format("tampu")``, sessions, and settling of streams.

import tampu.spark
spark = tampu.spark.session()
spark.read.format("tampu").option("url", "jobs.db").option("queue", "emails").load()

Not here: how the rows are read from a store (`stores/`), and the tables that are kept of them (`lake/`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tampu.spark.queue.settle import settle
    from tampu.spark.runtime.sessions import register, session

__all__ = ["register", "session", "settle"]

_MODULES = {"register": "runtime.sessions", "session": "runtime.sessions", "settle": "queue.settle"}


def __getattr__(name: str) -> Any:
    """Import Spark on first use: it takes a second, and Spark's Python workers import this package too."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
