"""What tools read from a lake: similar failures and insights, only of the caller's tenant."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import tampu
from tampu.lake.storage import Lake
from tampu.mcp.lake import lake_of
from tests.mcp_server.clients import in_memory
from tests.mcp_server.walk import prepare

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def lake_with_failures(path: Path, fingerprint: str) -> None:
    """A lake with two days of one failure, of two tenants, written without Spark."""
    table = Lake(path).table("gold.failures")
    table.create()
    rows = [
        {
            "queue": "emails", "fingerprint": fingerprint, "error": "mailbox 5 is full", "attempts": attempts,
            "messages": 1, "dead": 1, "types": ["send"], "first_at": AT, "last_at": AT, "sample_ids": ["a"],
            "day": date(2026, 3, day), "tenant": tenant,
        }
        for day, tenant, attempts in ((1, "default", 3), (2, "default", 4), (2, "rival", 100))
    ]  # fmt: skip
    write_deltalake(table.uri, pa.Table.from_pylist(rows, table.spec.schema), mode="append")


def test_similar_failures_and_insights_come_from_the_lake_of_the_tenant(tmp_path: Path) -> None:
    path = tmp_path / "jobs.lake"

    async def run() -> None:
        with tampu.open("memory://", maintenance=False) as store:
            ids = prepare(store)
            (group,) = store.dead.groups(queue="emails").groups
            lake_with_failures(path, group.fingerprint)
            async with in_memory(store, lake=str(path)) as tools:
                (similar,) = (await tools("explain_failure", id=ids["bad"]))["similar_in_lake"]
                assert (similar["queue"], similar["attempts"], similar["days"]) == ("emails", 7, 2)
                found = await tools("insights", days=30)
                assert (found["source"], found["empty"]) == ("lake", True)  # there are no minutes in it

    asyncio.run(run())


def test_the_lake_is_beside_the_file_or_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAMPU_LAKE", raising=False)
    file = str(tmp_path / "jobs.db")
    assert lake_of(file) is None
    (tmp_path / "jobs.lake").mkdir()
    assert lake_of(file) == lake_of(f"sqlite:///{file}") == str(tmp_path / "jobs.lake")
    assert lake_of("postgresql://db/jobs") is None  # a lake in this folder may be of another store
    monkeypatch.setenv("TAMPU_LAKE", "s3://bucket/lake")
    assert lake_of("postgresql://db/jobs") == "s3://bucket/lake"
    assert lake_of(file, str(tmp_path / "nowhere")) is None
