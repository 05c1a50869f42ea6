"""A fast server and an empty database for each test of the MariaDB engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

import tampu
from tests.servers.mariadb import MariaDb, databases


@pytest.fixture
def server() -> MariaDb:
    return databases.server


@pytest.fixture
def url() -> str:
    return databases.url()


@pytest.fixture
def store(url: str) -> Iterator[tampu.Store]:
    with tampu.open(url, maintenance=False) as opened:
        yield opened


@pytest.fixture
def db(server: MariaDb) -> Iterator[pymysql.Connection[Any]]:
    """A connection of the user's own, as the server's owner."""
    with server.connect() as connection:
        yield connection
