"""kill -9 while a queue is drained: nothing is lost, everything is settled, only uncommitted batches come twice.

The suite kills a whole driver once, after its sink has written, and at the other points the process that owns the
consumer. With TAMPU_LONG=1 whole drivers are killed at every point.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import tampu
from tests.spark import drain_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = bool(os.environ.get("TAMPU_LONG"))


def kill_driver(url: str, home: Path, point: str) -> None:
    home.mkdir(exist_ok=True)
    env = {**os.environ, "SPARK_LOCAL_DIRS": str(home / "local")}
    command = [sys.executable, drain_job.__file__, url, str(home), point]
    log = home / f"driver-{point}.log"
    with log.open("w") as out:
        done = subprocess.run(
            command, env=env, stdout=out, stderr=out, start_new_session=True, timeout=300, check=False
        )
    assert done.returncode == -signal.SIGKILL, log.read_text()[-3000:]


def kill_source(spark: SparkSession, url: str, home: Path, point: str) -> None:
    spark.dataSource.register(drain_job.killing_source(False))
    query = drain_job.drain(spark, url, home, point)
    try:
        query.awaitTermination(300)
    except Exception:
        return
    raise AssertionError(f"the query went on after its source was killed at {point}")


def deliveries(home: Path) -> list[tuple[int, list[tuple[int, str]]]]:
    """(batch, its deliveries) in the order in which they came, also those that came again."""
    lines = (home / "all.jsonl").read_text().splitlines()
    return [(number, [(delivery, id) for delivery, id in rows]) for number, rows in map(json.loads, lines) if rows]


def test_nothing_is_lost_and_all_is_settled_after_kills_at_every_point(spark, q: tampu.Queue, url, tmp_path):
    ids = {message.id for message in q.publish_many("emails", range(70))}
    home = tmp_path / "home"

    kill_driver(url, home, "sink")
    assert q.stats("emails").leased == 20
    assert q.stats("emails").done == 0

    if LONG:
        kill_driver(url, home, "commit")
    else:
        kill_source(spark, url, home, "commit")
    assert q.stats("emails").leased == 20, "committed, not settled"

    if LONG:
        kill_driver(url, home, "lease")
    else:
        kill_source(spark, url, home, "lease")
    assert q.stats("emails").done == 20
    assert q.stats("emails").leased == 20

    assert drain_job.drain(spark, url, home, "", form="tampu").awaitTermination(300)

    came = deliveries(home)
    states = q.stats("emails")
    assert (states.done, states.depth) == (70, 0)
    assert {id for _, rows in came for _, id in rows} == ids
    by_batch: dict[int, list[tuple[int, str]]] = {}
    for number, rows in came:
        assert by_batch.setdefault(number, rows) == rows, "a batch that came again was another one"
    kept = sorted(row for rows in by_batch.values() for row in rows)
    assert [delivery for delivery, _ in kept] == list(range(1, 71))
    assert len({id for _, id in kept}) == 70, "a message of a committed batch came again"
    repeated = [number for number, _ in came]
    assert len(repeated) == len(by_batch) + 1, "only the batch that was killed after its sink came twice"
    assert all(message.attempts == 1 for message in q.messages("emails", state="done"))
