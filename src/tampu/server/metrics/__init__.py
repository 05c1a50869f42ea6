"""What Prometheus reads: counters of this process and numbers of the store."""
