"""Celery on tampu: a transport of kombu (`broker_url`) and a result backend, both on any url of tampu.

Both only use the public `tampu.Store`. See docs/how-to/celery.md.
"""
