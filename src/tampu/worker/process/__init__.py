"""A worker as a process: start, signals, health checks, supervision of several workers, logs, the live view."""
