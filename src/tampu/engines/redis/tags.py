"""Hash tags of the keys. All keys of a queue share one hash tag, so they are in one slot of a cluster.

``{tampu}``: the queue registry, documents and the leader. ``{tampu:<tenant>}``: the names that are unique in a tenant.
``{tampu:<tenant>:<queue>}``: a queue. A colon inside a name is written ``%3A``, so no two queues share a tag.
"""

from __future__ import annotations


class Tags:
    """The tags of one store. ``prefix`` separates several stores on one server."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.registry = f"{{{prefix}}}"

    def tenant(self, tenant: str) -> str:
        return f"{{{self.prefix}:{escape(tenant)}}}"

    def queue(self, tenant: str, queue: str) -> str:
        return f"{{{self.prefix}:{escape(tenant)}:{escape(queue)}}}"


def escape(name: str) -> str:
    """Escape colons, and ``%``, because kinds of documents may contain any character."""
    return name.replace("%", "%25").replace(":", "%3A")


def unescape(text: str) -> str:
    """The name that `escape` was given."""
    return text.replace("%3A", ":").replace("%25", "%")
