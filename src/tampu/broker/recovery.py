"""Marks of long calls that have not ended: maintenance finds all of them with one read, and goes on if the caller dies.

The mark is written in one unit with what it stands for, and removed with the last step.
"""

from __future__ import annotations

from tampu.engines.port import DeleteDocument, Engine, PutDocument

_MARK, _TENANT = "unfinished", "*"


def marked(kind: str, tenant: str, name: str) -> PutDocument:
    return PutDocument(_MARK, _TENANT, f"{kind}/{tenant}/{name}", b"{}")


def unmarked(kind: str, tenant: str, name: str) -> DeleteDocument:
    return DeleteDocument(_MARK, _TENANT, f"{kind}/{tenant}/{name}")


def pending(engine: Engine) -> list[tuple[str, str, str]]:
    """(kind, tenant, name) of all that has not ended."""
    found = []
    for document in engine.documents(_MARK, _TENANT):
        kind, tenant, name = document.name.split("/", 2)
        found.append((kind, tenant, name))
    return found
