"""The lease keeper: extends the leases of a worker's messages while they run."""
