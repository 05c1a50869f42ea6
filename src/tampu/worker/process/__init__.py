"""A worker as a process: start, signals, supervision, logs, the live view."""
