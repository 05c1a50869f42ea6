"""Spark over HTTP: what the routes under ``/v1/spark`` stand on."""
