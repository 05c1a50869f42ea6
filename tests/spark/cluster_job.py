"""A small Spark program that uses the whole source and the pipeline: run by the cluster tests on each kind of cluster.

    python -m tests.spark.cluster_job URL LAKE [--master M | --remote R] [--accidents FOLDER] [--meeting FOLDER]

With a folder, all that `cluster_faults` has happens then, or another driver comes by (`meeting`). Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

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
rows = spark.range(200).selectExpr("struct(id AS n) AS payload", "'count' AS type", "id % 3 AS priority")
rows.repartition(2).write.format("tampu").mode("append").option("url", args.url).option("queue", "numbers").option(
    "jobId", "cluster-job"
).save()
read = spark.read.format("tampu").option("url", args.url).option("queue", "numbers").load()
total = read.selectExpr("sum(get_json_object(cast(payload AS string), '$.n')) AS total", "count(*) AS rows").collect()[
    0
]
journal = spark.read.format("tampu").option("url", args.url).option("kind", "journal").load()
answer = {
    "rows": total["rows"],
    "total": int(total["total"]),
    "journal": journal.count(),
    "partitions": read.rdd.getNumPartitions() if not args.remote else None,
}
where = ["--remote", args.remote] if args.remote else ["--master", args.master]
ran = CliRunner().invoke(app, ["--url", args.url, "pipeline", "run", "--once", "--lake", args.lake, *where, "--json"])
answer["pipeline"] = json.loads(ran.stdout) if ran.exit_code == 0 else ran.output
if args.accidents:
    answer["seen"] = cluster_faults.happen(spark, f"{args.url}-accidents", args.accidents)
if args.meeting:
    answer["ended"] = paused_driver.meet(spark, str(args.meeting / "jobs.db"), args.meeting)
spark.stop()
print(json.dumps(answer))
sys.stdout.flush()
