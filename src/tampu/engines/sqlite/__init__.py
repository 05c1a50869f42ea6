"""The embedded engine: one SQLite file in WAL mode (or memory), shared by as many processes as like."""

from tampu.engines.sqlite.engine import SqliteEngine

__all__ = ["SqliteEngine"]
