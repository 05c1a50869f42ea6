"""Prometheus metrics: counters of this process and numbers read from the store."""
