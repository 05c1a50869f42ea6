"""Days on which a queue failed often, read from a table that tampu keeps."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from tampu.lake.storage import Lake
from tampu.lake.storage.frames import read

# Outside of the function: inside, a pipeline allows no look at columns or rows.
queue_days = read(SparkSession.active(), Lake(os.environ["TAMPU_LAKE"]).table("gold.queue_days").open())


@dp.materialized_view
def failing_days() -> DataFrame:
    """Of the deliveries of a day, the share that failed; days with at least one in ten."""
    share = queue_days.where("claimed > 0").selectExpr("tenant", "day", "queue", "dead", "failed / claimed AS share")
    return share.where("share >= 0.1")
