"""Erasure: all messages of a subject are removed from the store, with a report."""
