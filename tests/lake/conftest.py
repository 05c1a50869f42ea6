"""The Spark session and queues of the Spark tests, for the lake's tests too: it is the same session."""

from tests.spark.conftest import q, spark, url

__all__ = ["q", "spark", "url"]
