"""Group commit: callers that arrive during a commit join the next one; waiting for messages and for results."""
