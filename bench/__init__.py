"""Measurements of tampu beside ceilings and peers, all in one run. `make bench` prints a table and writes JSON."""
