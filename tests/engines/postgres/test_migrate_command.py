"""`tampu migrate`: makes the schema, prints how, and never shows a password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tampu
from tampu.engines.postgres import migrations
from tests.cli.run_command import Command
from tests.servers.postgres import Postgres

SCHEMA = "by_command"
NOW = migrations.migrations()[-1][0]


@pytest.fixture
def place(server: Postgres, db: psycopg.Connection[Any]) -> Iterator[str]:
    db.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    yield server.url(schema=SCHEMA)
    db.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path / "none.db")


def test_migrate_makes_the_schema_once(command: Command, place: str) -> None:
    assert command.ok("migrate", "--url", place) == {"schema": f"{SCHEMA}: version {NOW}, was 0"}
    assert command.ok("migrate", "--url", place) == {"schema": f"{SCHEMA}: version {NOW}"}


def test_printed_sql_can_be_run_and_changes_nothing_by_itself(
    command: Command, place: str, db: psycopg.Connection[Any]
) -> None:
    answer = command("migrate", "--sql", "--url", place)
    assert answer.code == 0
    assert db.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (SCHEMA,)).fetchone() is None
    db.execute(answer.out.encode())
    with tampu.open(place, maintenance=False) as store:
        store.publish("jobs", 1)
    assert command.ok("migrate", "--sql", "--url", place)["statements"] == []


def test_a_file_is_brought_up_to_date_too_but_not_by_sql(command: Command, tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    assert "version" in command.ok("migrate", "--url", path)["schema"]
    assert command("migrate", "--sql", "--url", path).code != 0


def test_doctor_does_not_show_a_password(command: Command, place: str) -> None:
    command.ok("migrate", "--url", place)
    secret = place.replace("postgres@", "postgres:hush@")
    answer = command("doctor", "--url", secret)
    assert "hush" not in answer.out + answer.err
    assert "PostgreSQL" in answer.out
