"""The embedded file as a store for Spark."""
