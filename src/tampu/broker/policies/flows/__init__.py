"""Flows: messages that wait for others of the same flow, get their results, and have a policy for failures."""
