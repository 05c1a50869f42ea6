"""Streams of leases for workers, for threads and for event loops."""
