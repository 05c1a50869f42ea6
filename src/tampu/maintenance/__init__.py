"""Background tasks of a store: sweep, trim, schedule, reorder. The supervisor runs them, in the leader only."""
