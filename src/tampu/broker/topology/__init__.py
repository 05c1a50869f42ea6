"""Topology files: queues, policies, schedules and grants in one file, applied as one unit."""
