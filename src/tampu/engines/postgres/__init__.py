"""The PostgreSQL engine: one schema of a database, shared by as many processes and machines as like."""

from tampu.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
