"""Schedules: their verbs, how they are stored, when their ticks are, and how one tick is fired.

`tampu.maintenance.scheduler` fires the ticks, in the leader only.
"""
