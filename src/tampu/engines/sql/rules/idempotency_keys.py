"""Under which names idempotency keys are stored: each belongs to its queue.

Keys of users are stored under the tenant with a slash before it. No other row has such a tenant: not the names of units
and batches, and not the keys of schemas in which a key belonged to its tenant.
"""

from __future__ import annotations


def scope(tenant: str) -> str:
    return f"/{tenant}"


def name(queue: str, key: str) -> bytes:
    """The name of a key. No queue has a slash in its name, so the first one ends it."""
    return f"{queue}/{key}".encode()


def without_queue(key: str) -> bytes:
    """The name of a key from an earlier schema whose message was gone, so that nobody knew its queue."""
    return name("", key)


def parse(stored: bytes) -> tuple[str | None, str]:
    """(queue, key) of a name."""
    queue, _, key = stored.decode().partition("/")
    return queue or None, key
