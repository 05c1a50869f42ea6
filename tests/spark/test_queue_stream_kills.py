"""kill -9 while a queue is drained: nothing is lost, everything is settled, only uncommitted batches come twice.

Whole drivers are killed at each point on files, all at once, for a driver takes seconds to start. On every engine the
process that owns the consumer is killed, one point after the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import tampu
from tests.spark import drain_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def kill_driver(url: str, home: Path, point: str) -> None:
    home.mkdir(exist_ok=True)
    env = {**os.environ, "SPARK_LOCAL_DIRS": str(home / "local")}
    command = [sys.executable, "-m", "tests.spark.drain_job", url, str(home), point]
    log = home / f"driver-{point}.log"
    with log.open("w") as out:
        done = subprocess.run(
            command, cwd=ROOT, env=env, stdout=out, stderr=out, start_new_session=True, timeout=300, check=False
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


def fail_after_sink(spark: SparkSession, url: str, home: Path) -> None:
    query = drain_job.drain(spark, url, home, "raise", form="tampu")
    try:
        query.awaitTermination(300)
    except Exception:
        return
    raise AssertionError("the query went on after its sink failed")


def finish(spark: SparkSession, store: tampu.Store, url: str, home: Path, ids: set[str]) -> tuple[list[int], set[int]]:
    """Drain what is left and hold what came against the engine; the batches in which it came, and the distinct ones."""
    assert drain_job.drain(spark, url, home, "", form="tampu").awaitTermination(300)
    came = deliveries(home)
    states = store.stats("emails")
    assert (states.done, states.depth) == (len(ids), 0)
    assert {id for _, rows in came for _, id in rows} == ids
    by_batch: dict[int, list[tuple[int, str]]] = {}
    for number, rows in came:
        assert by_batch.setdefault(number, rows) == rows, "a batch that came again was another one"
    kept = sorted(row for rows in by_batch.values() for row in rows)
    assert [delivery for delivery, _ in kept] == list(range(1, len(ids) + 1))
    assert len({id for _, id in kept}) == len(ids), "a message of a committed batch came again"
    assert all(message.attempts == 1 for message in store.messages("emails", state="done", limit=1000))
    return [number for number, _ in came], set(by_batch)


def test_nothing_is_lost_and_all_is_settled_after_kills_at_every_point(spark, store: tampu.Store, url, tmp_path):
    ids = {message.id for message in store.publish_many("emails", range(70))}
    home = tmp_path / "home"
    fail_after_sink(spark, url, home)
    assert (store.stats("emails").leased, store.stats("emails").done) == (20, 0)
    kill_source(spark, url, home, "commit")
    assert store.stats("emails").leased == 20, "committed, not settled"
    kill_source(spark, url, home, "lease")
    assert (store.stats("emails").leased, store.stats("emails").done) == (20, 20)
    came, distinct = finish(spark, store, url, home, ids)
    assert len(came) == len(distinct) + 1, "only the batch whose sink failed came twice"


def test_whole_drivers_killed_at_each_point_lose_and_double_nothing(spark, tmp_path):
    """After the sink has written, after Spark has committed, after the next batch was leased."""
    homes = {point: tmp_path / point for point in ("sink", "commit", "lease")}
    urls = {point: str(tmp_path / f"{point}.db") for point in homes}
    with contextlib.ExitStack() as opened:
        queues = {point: opened.enter_context(tampu.open(url, maintenance=False)) for point, url in urls.items()}
        ids = {point: {m.id for m in store.publish_many("emails", range(45))} for point, store in queues.items()}
        with ThreadPoolExecutor(len(homes)) as pool:
            for done in [pool.submit(kill_driver, urls[point], homes[point], point) for point in homes]:
                done.result()
        assert {point: store.stats("emails").leased for point, store in queues.items()} == dict.fromkeys(homes, 20)
        again = {"sink": 1, "commit": 0, "lease": 0}
        for point, store in queues.items():
            came, distinct = finish(spark, store, urls[point], homes[point], ids[point])
            assert len(came) == len(distinct) + again[point], point
