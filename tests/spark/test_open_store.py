"""From a url to a store: what is not there is not made by reading it, and what is secret is not shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import tampu
from tampu.spark.journal_stream import JournalStreamReader
from tampu.spark.options import Options, has_password
from tampu.spark.read import JournalReader, MessagesReader
from tampu.stores.open_store import open_existing, open_store
from tests.servers.postgres import databases

READS: list[Callable[[Options], object]] = [
    lambda options: MessagesReader(options).partitions(),
    lambda options: JournalReader(options).partitions(),
    lambda options: JournalStreamReader(options).latestOffset({"from": "latest"}, ReadAllAvailable()),
]


@pytest.mark.parametrize("read", READS, ids=["messages", "journal", "stream"])
@pytest.mark.parametrize("form", ["{}", "sqlite:///{}"])
def test_reading_a_file_that_is_not_there_is_refused_and_makes_none(tmp_path: Path, read: Callable, form: str) -> None:
    path = tmp_path / "typo.db"
    with pytest.raises(tampu.NotFound, match=r"there is no file .*typo.db .*use an absolute path"):
        read(Options({"url": form.format(path)}))
    assert list(tmp_path.iterdir()) == []
    tampu.open(path, maintenance=False).close()
    read(Options({"url": form.format(path)}))


def test_reading_a_schema_that_is_not_there_is_refused_and_makes_none() -> None:
    url = databases.server.url(schema="nobodys")
    for _ in range(2):
        with pytest.raises(tampu.NotFound, match=r"has no schema nobodys .*\?schema="):
            open_existing(url)


def test_a_url_can_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(tampu.InvalidConfig, match="the environment has no JOBS_URL"):
        open_store("env:JOBS_URL")
    monkeypatch.setenv("JOBS_URL", str(tmp_path / "jobs.db"))
    with open_store("env:JOBS_URL"):
        pass
    with open_existing("env:JOBS_URL") as store:
        assert store.bounds() == ({"0": 0}, {"0": 0})
    with pytest.raises(tampu.InvalidConfig, match="cannot read a store in memory"):
        open_store("memory://")


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("jobs.db", False),
        ("env:URL", False),
        ("postgresql://me@host/db?schema=s", False),
        ("postgresql://me:pw@host/db", True),
        ("postgresql://host/db?user=me&password=pw", True),
        ("redis://:pw@host:1/0", True),
        ("redis://host/0?ssl_keyfile_password=x", True),
        ("mariadb://app@db/jobs?index=redis://cache:6379/0", False),
        ("mariadb://app@db/jobs?index=redis://:s3cret@cache:6379/0", True),
        ("mariadb://app@db/jobs?index=redis%3A%2F%2F%3As3cret%40cache%3A6379%2F0", True),
        ("https://host/?token=abc", True),
        ("redis://host:6379/0?client_name=me@host", False),
        ("postgresql://me:what?@host/db", True),
    ],
)
def test_a_url_with_a_password_is_noticed(url: str, secret: bool) -> None:
    assert has_password(url) is secret
