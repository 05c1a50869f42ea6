"""Background tasks of a store: sweep (promote, reap, expire), trim, schedule, follow, reorder.

The supervisor runs them, in the leader only.

Not here: the rules. A task decides when something is due, and calls the broker or the engine to do it.
"""
