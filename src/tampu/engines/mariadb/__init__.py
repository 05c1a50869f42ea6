"""The MariaDB engine: tables of one database, shared by as many processes and machines as like."""

from tampu.engines.mariadb.engine import MariaEngine

__all__ = ["MariaEngine"]
