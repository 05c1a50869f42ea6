"""Webhooks: what rules and alerts send to urls. Deliveries are messages of a queue of tampu's own.

`tampu.maintenance.webhooks` sends them.
"""
