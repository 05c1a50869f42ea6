"""Sends webhooks: the leader claims deliveries from the system queue and posts them, several at once."""
