"""Follows the journal for clients: the event feed, and waiting for results."""
