"""Subscriptions: who gets what is published to a broadcast queue."""
