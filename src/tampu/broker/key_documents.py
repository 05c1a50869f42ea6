"""API keys as documents. The server makes and checks keys; here is what other code may know of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tampu.engines.port import Document, PutDocument
from tampu.model.decoders import convert
from tampu.model.grants import Grant

KIND = "key"
TENANT = "*"
"""All keys are stored under this tenant: a key's own tenant is only known after it was found by its id."""
CHANGES = "key_changes"
"""Kind and name of the document whose version says that a key was changed."""


class KeyGrants(msgspec.Struct, frozen=True):
    """A key without its secret."""

    id: str
    tenant: str
    name: str
    grants: tuple[Grant, ...]


def read(document: Document) -> KeyGrants:
    return convert(msgspec.json.decode(document.value), KeyGrants)


def with_grants(document: Document, grants: Sequence[Grant]) -> list[PutDocument]:
    """The calls that give a key other grants. All else of it stays."""
    value = msgspec.json.decode(document.value) | {"grants": grants}
    return [PutDocument(KIND, TENANT, document.name, msgspec.json.encode(value), document.version), announcement()]


def announcement() -> PutDocument:
    """A new version of `CHANGES`: nodes read their keys again only if that has changed."""
    return PutDocument(CHANGES, TENANT, CHANGES, b"{}")
