"""The MariaDB engine: tables in one database, shared by any number of processes and machines."""

from tampu.engines.mariadb.engine import MariaEngine

__all__ = ["MariaEngine"]
