"""The PostgreSQL engine: one schema of a database, shared by any number of processes and machines."""

from tampu.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
