"""Private stores to measure on: an empty one of an engine, with the durability that users get."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.servers.postgres import Postgres
from tests.servers.redis import DURABLE, Server, redis_binary

ENGINES = ("file", "postgres", "redis")


@contextlib.contextmanager
def store(engine: str, place: Path) -> Iterator[str]:
    """The url of an empty store."""
    if engine == "postgres":
        with Postgres({"shared_buffers": "512MB", "max_wal_size": "4GB"}) as server:
            yield server.url()
    elif engine == "redis":
        redis = Server(redis_binary(), DURABLE).start()
        try:
            yield redis.url()
        finally:
            redis.remove()
    else:
        yield str(place / "jobs.db")


def lax(url: str) -> str:
    """The same store, filled without waiting for the disk."""
    if "://" not in url:
        return f"sqlite:///{url}?durability=process"
    return f"{url}{'&' if '?' in url else '?'}durability=process" if url.startswith("postgres") else url
