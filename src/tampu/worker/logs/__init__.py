"""What a worker logs: its start, each attempt, and the format of the lines."""
