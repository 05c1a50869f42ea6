"""Compares tampu with ceilings and other queues in one run. `make bench` prints a table and writes JSON."""
