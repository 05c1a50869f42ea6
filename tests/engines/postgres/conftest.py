"""A fast server and an empty schema for each test of the PostgreSQL engine."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import tampu
from tests.servers.postgres import Postgres, databases


@pytest.fixture
def server() -> Postgres:
    return databases.server


@pytest.fixture
def url() -> str:
    return databases.url()


@pytest.fixture
def store(url: str) -> Iterator[tampu.Store]:
    with tampu.open(url, maintenance=False) as opened:
        yield opened


@pytest.fixture
def db(server: Postgres) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the user's own, as the server's owner."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        yield connection
