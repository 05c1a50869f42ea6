"""What the lake says of the last days: counts, failures that are alike, and forecasts."""

from tampu.lake.insights.queries import gather

__all__ = ["gather"]
