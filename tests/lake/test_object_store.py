"""A lake in an object store: S3 as moto serves it on this machine. The same runs and refusals, and no secret shown."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tampu
from tampu import InvalidConfig, VersionConflict
from tampu.lake import maintenance
from tampu.lake.query import Lake as Looking
from tampu.lake.status import status
from tampu.lake.storage import Lake, frames
from tampu.lake.storage.snapshots import Mark
from tampu.lake.storage.urls import resolved, storage_options
from tests.lake.pipeline_harness import Died, Rig, journal, work
from tests.servers.s3 import KEYS, S3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = KEYS["AWS_SECRET_ACCESS_KEY"]
os.environ.update(KEYS)  # now: executors have the environment in which Spark was started, by whichever test


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an S3; its keys are in the environment, as they should be."""
    with S3() as server:
        yield server.address


@pytest.fixture
def rig(s3: str, url: str, request: pytest.FixtureRequest) -> Rig:
    options = {"AWS_ENDPOINT_URL": s3, "AWS_ALLOW_HTTP": "true", "AWS_SECRET_ACCESS_KEY": "env:AWS_SECRET_ACCESS_KEY"}
    return Rig(url, f"s3://lakes/{request.node.name}", options=options)


def test_runs_that_die_are_repeated_exactly_in_s3_too(
    rig: Rig, store: tampu.Store, spark: SparkSession, tmp_path: Path
) -> None:
    """Executors write and read S3 without jars; a lake at a `file:` url is a folder, and has the same rows."""
    for turn, step in enumerate(("written", "silver.messages")):
        work(store, turn)
        with pytest.raises(Died):
            rig.run(die=step)
    work(store, 2)
    rig.run()
    assert rig.rows("bronze.events", "offset", "id", "verb") == journal(store)
    local = Rig(rig.url, f"file://{tmp_path}/a lake")
    local.run(name="local")
    assert local.lake.local == tmp_path / "a lake"
    assert local.rows("bronze.events", "offset", "id", "verb") == journal(store)
    for table in ("bronze.messages", "silver.messages", "silver.attempts", "gold.queue_minutes", "gold.failures"):
        assert rig.rows(table) == local.rows(table), table
    assert status(rig.url, rig.lake, "main")["lag_messages"] == 0

    read = frames.read(spark, rig.lake.table("silver.attempts").open())
    assert {row.outcome for row in read.collect()} == {"ack", "nack", "reject"}
    plan = read._jdf.queryExecution().toString()
    assert SECRET not in plan

    with Looking(rig.lake.uri, storage_options=rig.lake.options).ask() as ask:
        ((count,),) = ask.run("SELECT count(*) FROM bronze.events").fetchall()
    assert count == len(journal(store))
    assert [care.into for care in maintenance.compact(rig.lake) if care.table == "bronze.events"] == [1]
    assert rig.rows("bronze.events", "offset", "id", "verb") == journal(store)


def test_of_two_commits_on_the_same_version_in_s3_the_second_is_refused(rig: Rig) -> None:
    table = rig.lake.table("bronze.events")
    one, two = table.create(), table.open()
    one.commit([], Mark("lake:main", 1, {"0": 2}))
    with pytest.raises(VersionConflict, match="another run"):
        two.commit([], Mark("lake:main", 1, {"0": 2}))


def test_secrets_do_not_travel(rig: Rig) -> None:
    target = rig.lake.table("bronze.events").target
    assert SECRET not in pickle.dumps(target).decode(errors="replace")
    assert resolved(target.place.options)["AWS_SECRET_ACCESS_KEY"] == SECRET


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "aws_session_token",
        "aws_sse_customer_key_base64",
        "azure_storage_account_key",
        "azure_storage_access_key",
        "AZURE_STORAGE_MASTER_KEY",
        "access_key",
        "azure_storage_sas_token",
        "google_service_account_key",
    ],
)
def test_a_secret_given_as_an_option_is_refused_with_the_cure(name: str) -> None:
    with pytest.raises(InvalidConfig, match="plans") as refused:
        Lake("s3://lakes/x", {name: "abc"})
    assert "abc" not in str(refused.value)
    assert f"{name}=env:" in str(refused.value.hint)
    assert storage_options({name: "env:X", "AWS_REGION": "eu-west-1"})


def test_a_url_with_a_password_is_a_secret_whatever_the_option() -> None:
    with pytest.raises(InvalidConfig, match="proxy_url") as refused:
        Lake("s3://lakes/x", {"proxy_url": "http://me:s3cret@proxy:3128"})
    assert "s3cret" not in str(refused.value)


def test_what_is_no_secret_may_be_an_option() -> None:
    given = {
        "AWS_ACCESS_KEY_ID": "AKIA",
        "aws_sse_kms_key_id": "alias/lake",
        "aws_sse_bucket_key_enabled": "true",
        "azure_federated_token_file": "/var/run/token",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
    }
    assert storage_options(given) == given


def test_a_variable_that_is_not_there_is_named() -> None:
    assert "TAMPU_NO_SUCH" not in os.environ
    with pytest.raises(InvalidConfig, match="TAMPU_NO_SUCH"):
        resolved({"AWS_SECRET_ACCESS_KEY": "env:TAMPU_NO_SUCH"})
