"""Measurements of the Spark side; `make bench-spark`."""
