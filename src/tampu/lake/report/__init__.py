"""The insights as one HTML file, and the numbers and drawings in it."""

from tampu.lake.report.html import page, write

__all__ = ["page", "write"]
