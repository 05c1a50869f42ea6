"""Found by Spark by its name: ``format("tampu")`` works without registering anything."""

from tampu.spark.source import TampuDataSource as DefaultSource

__all__ = ["DefaultSource"]
