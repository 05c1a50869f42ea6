"""Which columns and options a write takes. No Spark here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructField, StructType, TimestampNTZType

import tampu
from tampu.spark.options import Options
from tampu.spark.write.writer import BatchWriter
from tests.spark.writer_driver import TEXT


def _with(name: str, kind: Any) -> StructType:
    return StructType([*TEXT, StructField(name, kind)])


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (_with("id", LongType()), {}, "a message has no column 'id'.*known: payload, queue, type"),
        (StructType([StructField("type", StringType())]), {}, "there is no column payload"),
        (_with("priority", StringType()), {}, "the column priority is string"),
        (_with("run_at", TimestampNTZType()), {}, "the column run_at is timestamp_ntz"),
        (_with("labels", MapType(StringType(), IntegerType())), {}, "the column labels is map<string,int>"),
        (_with("Payload", StringType()), {}, "two columns payload"),
        (TEXT, {"queue": ""}, "no queue is named"),
        (TEXT, {"queue": "no queue"}, "is not a queue name"),
        (TEXT, {"badRows": "s3://bucket/bad"}, "cannot be saved in s3://.*a folder that the driver can write to"),
        (TEXT, {"badRows": __file__}, "is not a folder"),
        (TEXT, {"tenant": "no tenant"}, "is not a tenant name"),
        (TEXT, {"url": ""}, "the option url is missing"),
        (TEXT, {"jobId": "x" * 201}, "jobId must be a text"),
        (TEXT, {"onCommit": "false", "atomic": "true"}, "exclude each other"),
    ],
)
def test_what_cannot_be_written_is_refused_with_the_cure(
    url: str, schema: StructType, options: dict[str, str], message: str
) -> None:
    with pytest.raises(tampu.TampuError, match=message):
        BatchWriter(Options({"url": url, "queue": "jobs", **options}), schema)


def test_a_folder_for_bad_rows_may_be_a_url_of_a_file() -> None:
    assert BatchWriter(Options({"url": "jobs.db", "queue": "q", "badRows": "file:///tmp/bad"}), TEXT).bad_rows == Path(
        "/tmp/bad"
    )
