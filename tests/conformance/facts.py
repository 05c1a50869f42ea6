"""What the page of engines says besides the tests: the texts of facts.toml, and the versions that were tried."""

from __future__ import annotations

import importlib
import sqlite3
import tomllib
from collections.abc import Callable
from pathlib import Path

import msgspec
import psycopg

from tests.servers import mariadb, postgres, redis


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    engine: str
    """Module and class."""
    url: str
    versions: str
    durability: str
    restart: str
    """What happens when the process or the server stops and comes back."""

    atomic: str = ""
    """How units become visible, where it is not as the class says."""

    @property
    def capabilities(self) -> frozenset[str]:
        module, _, name = self.engine.partition(":")
        found: frozenset[str] = getattr(importlib.import_module(module), name).capabilities
        if self.atomic:
            found = frozenset({one for one in found if not one.startswith("atomic:")} | {f"atomic:{self.atomic}"})
        return found


CAPABILITIES = {
    "transaction": "publish and settle inside your own transaction: `store.transaction(connection)`",
    "group_order": "groups deliver one message at a time, in order",
    "load": "bulk load of simple messages, without an object for each; other engines publish them, which is slower",
    "batch_id": "a repeated batch is found by one row; on other engines its ids are derived from the batch id",
    "atomic:isolated": "a unit of several calls becomes visible at once: `store.atomic()`",
    "atomic:eventual": "a unit over several queues becomes visible queue by queue, within seconds, also after a crash",
}
FACTS = {
    name: msgspec.convert({key: " ".join(text.split()) for key, text in facts.items()}, Facts)
    for name, facts in tomllib.loads((Path(__file__).with_suffix(".toml")).read_text()).items()
}


def _postgres() -> str:
    with psycopg.connect(postgres.databases.server.url()) as db:
        row = db.execute("SHOW server_version").fetchone()
        return f"PostgreSQL {row[0].split()[0]}" if row else ""


def _mariadb() -> str:
    with mariadb.databases.server.connect() as db, db.cursor() as cursor:
        cursor.execute("SELECT version()")
        row = cursor.fetchone()
        return f"MariaDB {row[0].partition('-')[0]}" if row else ""


def _redis(databases: redis.Databases) -> Callable[[], str]:
    def ask() -> str:
        with databases.server.client() as client:
            info = client.info("server")
        named = "Valkey" if "valkey_version" in info else "Redis"
        return f"{named} {info.get('valkey_version') or info['redis_version']}"

    return ask


def _sqlite() -> str:
    return f"SQLite {sqlite3.sqlite_version}"


TRIED: dict[str, Callable[[], str]] = {
    "file": _sqlite,
    "memory": _sqlite,
    "postgres": _postgres,
    "mariadb": _mariadb,
    "mariadb+redis": lambda: f"{_mariadb()}, {_redis(redis.redis)()}",
    "redis": _redis(redis.redis),
    "valkey": _redis(redis.valkey),
    "cluster": _redis(redis.redis),
}
"""The version of the server that the suite ran on, by `Kit`; of others nothing is said."""
