"""A small Spark program that uses the whole source and the pipeline: run by the cluster tests on each kind of cluster.

    python -m tests.spark.cluster_job URL LAKE [--master M | --remote R] [--accidents FOLDER] [--meeting FOLDER]

With a folder for it, all that `cluster_faults` has happens then. With one for a meeting it does something else: another
driver comes by in the middle of it (`paused_driver`). Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import tampu.spark
from tampu.cli.main import app
from tests.spark import cluster_faults, paused_driver, quick_java

given = argparse.ArgumentParser()
given.add_argument("url")
given.add_argument("lake")
given.add_argument("--master")
given.add_argument("--remote")
given.add_argument("--accidents", type=Path)
given.add_argument("--meeting", type=Path)
args = given.parse_args()

quick = quick_java.options()
config = {} if args.remote else {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
if not args.remote:
    config |= {"spark.driver.extraJavaOptions": quick, "spark.executor.extraJavaOptions": quick}
if args.master and not args.master.startswith("local["):
    config |= {"spark.executor.memory": "600m", "spark.cores.max": "2", "spark.ui.enabled": "false"}
if args.accidents:
    config |= cluster_faults.CONFIG
spark = tampu.spark.session(args.master, remote=args.remote, name="cluster-job", config=config)


def use_everything(url: str, lake: str) -> dict[str, Any]:
    """Write, read, read the journal, and keep a lake by the command."""
    numbers = spark.range(200).selectExpr("struct(id AS n) AS payload", "'count' AS type", "id % 3 AS priority")
    given = {"url": url, "queue": "numbers"}
    numbers.repartition(2).write.format("tampu").mode("append").options(**given, jobId="cluster-job").save()
    read = spark.read.format("tampu").options(**given).load()
    number = "get_json_object(cast(payload AS string), '$.n')"
    (total,) = read.selectExpr(f"sum({number}) AS total", "count(*) AS rows").collect()
    journal = spark.read.format("tampu").options(url=url, kind="journal").load()
    where = ["--remote", args.remote] if args.remote else ["--master", args.master]
    ran = CliRunner().invoke(app, ["--url", url, "pipeline", "run", "--once", "--lake", lake, *where, "--json"])
    return {
        "rows": total["rows"],
        "total": int(total["total"]),
        "journal": journal.count(),
        "pipeline": json.loads(ran.stdout) if ran.exit_code == 0 else ran.output,
    }


if args.meeting:
    answer: dict[str, Any] = paused_driver.meet(spark, str(args.meeting / "jobs.db"), args.meeting)
else:
    answer = use_everything(args.url, args.lake)
if args.accidents:
    answer["seen"] = cluster_faults.happen(spark, f"{args.url}-accidents", args.accidents)
spark.stop()
print(json.dumps(answer))
sys.stdout.flush()
