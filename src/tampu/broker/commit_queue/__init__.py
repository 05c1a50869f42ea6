"""Group commit (concurrent calls share a commit), and waiting for messages and for results."""
