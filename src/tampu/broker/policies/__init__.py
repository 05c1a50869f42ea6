"""Policies: what may happen to a message besides being published, claimed and settled.

A policy is a *definition* that users put under a name (`definitions`), and a publish step or a follower that acts by
it. No engine knows any of it.
"""
