"""A small Spark program that uses the whole source: run by the cluster tests on each kind of cluster.

    python cluster_job.py URL [--master M | --remote R]

Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys

import tampu.spark

given = argparse.ArgumentParser()
given.add_argument("url")
given.add_argument("--master")
given.add_argument("--remote")
args = given.parse_args()

quick = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
config = {} if args.remote else {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
if not args.remote:
    config |= {"spark.driver.extraJavaOptions": quick, "spark.executor.extraJavaOptions": quick}
if args.master and not args.master.startswith("local["):
    config |= {"spark.executor.memory": "600m", "spark.cores.max": "2", "spark.ui.enabled": "false"}
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
plan = read._jdf.queryExecution().toString() if not args.remote else ""
answer = {
    "rows": total["rows"],
    "total": int(total["total"]),
    "journal": journal.count(),
    "partitions": read.rdd.getNumPartitions() if not args.remote else None,
    "url_in_plan": args.url in plan,
}
spark.stop()
print(json.dumps(answer))
sys.stdout.flush()
