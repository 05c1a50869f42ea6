"""Verbs on whole queues: settings, filters, replay, purge, removal, checks."""
