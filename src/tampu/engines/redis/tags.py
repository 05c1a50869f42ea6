"""The names of the keys. Everything of a queue shares one hash tag, so it lives in one slot of a cluster.

``{tampu}`` is the house: the directory of queues, documents, the keeper's seat. ``{tampu:<tenant>}`` are the names that
are unique in a tenant. ``{tampu:<tenant>:<queue>}`` is a queue. A colon inside a name is written ``%3A``, so no two
queues have one tag.
"""

from __future__ import annotations


class Tags:
    """The tags of one house; ``prefix`` keeps several houses on one server apart."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.registry = f"{{{prefix}}}"

    def tenant(self, tenant: str) -> str:
        return f"{{{self.prefix}:{plain(tenant)}}}"

    def queue(self, tenant: str, queue: str) -> str:
        return f"{{{self.prefix}:{plain(tenant)}:{plain(queue)}}}"


def plain(name: str) -> str:
    """A name in which no colon is left; ``%`` is written out too, for kinds of documents may have any."""
    return name.replace("%", "%25").replace(":", "%3A")


def named(text: str) -> str:
    """The name that `plain` wrote."""
    return text.replace("%3A", ":").replace("%25", "%")
