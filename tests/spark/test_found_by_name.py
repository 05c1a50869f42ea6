"""A session that nobody taught anything finds ``format("tampu")`` by the name of a package that is installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import tampu

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_of_the_user_s_own_finds_the_source(spark: SparkSession, tmp_path: Path) -> None:
    url = str(tmp_path / "jobs.db")
    untaught = spark.newSession()  # what is registered belongs to a session
    rows = untaught.range(3).selectExpr("struct(id AS n) AS payload")
    rows.write.format("tampu").mode("append").options(url=url, queue="numbers").save()
    with tampu.open(url, maintenance=False) as store:
        assert sorted(m.payload["n"] for m in store.messages("numbers")) == [0, 1, 2]
    untaught.sql(f"CREATE TEMPORARY VIEW numbers USING tampu OPTIONS (url '{url}', queue 'numbers')")
    assert untaught.sql("SELECT count(*) FROM numbers WHERE state = 'ready'").first()[0] == 3  # type: ignore[index]  # a count has a row
